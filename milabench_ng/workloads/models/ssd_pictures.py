"""What SSD's loader processes do with a picture and its boxes: crop, flip, resize, change colours, match."""

import torch
from PIL import Image
from torch import Tensor
from torchvision.ops import box_iou
from torchvision.transforms import ColorJitter
from torchvision.transforms import functional as V

from milabench_ng.workloads.models.ssd_boxes import SIDE, Matcher

WHOLE = None
LEAST_OVERLAPS = (WHOLE, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Least overlap with the boxes that stay in the crop; WHOLE: no crop. One is drawn for each attempt."""
ATTEMPTS = 50
"""Attempts before the whole picture is taken. (2020 had no limit.)"""


class Augment:
    """Picture, corners [n, 4] and labels [n] to the network's input and targets."""

    def __init__(self) -> None:
        self.matcher = Matcher()
        self.jitter = ColorJitter(brightness=0.125, contrast=0.5, saturation=0.5, hue=0.05)

    def __call__(self, picture: Image.Image, corners: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Picture [3, 300, 300], offsets [4, 8732], classes [8732]."""
        picture, corners, labels = crop(picture, corners, labels)
        if torch.rand(()) < 0.5:
            picture, corners = V.hflip(picture), mirrored(corners)
        picture = self.jitter(V.resize(picture, [SIDE, SIDE]))
        pixels = V.normalize(V.to_tensor(picture), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        return pixels, *self.matcher(corners, labels)


def mirrored(corners: Tensor) -> Tensor:
    """Boxes [n, 4] in the mirrored picture."""
    left, top, right, bottom = corners.unbind(1)
    return torch.stack((1 - right, top, 1 - left, bottom), 1)


def crop(picture: Image.Image, corners: Tensor, labels: Tensor) -> tuple[Image.Image, Tensor, Tensor]:
    """A random part of the picture, the boxes whose centre is in it, cut at its edges, and their labels."""
    for _ in range(ATTEMPTS):
        least = LEAST_OVERLAPS[int(torch.randint(len(LEAST_OVERLAPS), ()))]
        if least is WHOLE:
            break
        part = random_part()
        if part is None or not (box_iou(corners, part.unsqueeze(0)) >= least).all():
            continue
        inside = centres_within(corners, part)
        if inside.any():
            return cut(picture, part), seen_from(corners[inside], part), labels[inside]
    return picture, corners, labels


def random_part() -> Tensor | None:
    """Corners of a part with sides of 0.3 to 1; None if one side is more than twice the other."""
    width, height = 0.3 + 0.7 * torch.rand(2)
    if not 0.5 <= width / height <= 2:
        return None
    left, top = torch.rand(2) * (1 - torch.stack((width, height)))
    return torch.stack((left, top, left + width, top + height))


def centres_within(corners: Tensor, part: Tensor) -> Tensor:
    """Which of the boxes [n, 4] have their centre in the part."""
    centre = (corners[:, :2] + corners[:, 2:]) / 2
    return ((centre > part[:2]) & (centre < part[2:])).all(1)


def seen_from(corners: Tensor, part: Tensor) -> Tensor:
    """Boxes relative to the part instead of the picture, cut at its edges."""
    inside = torch.cat((corners[:, :2].maximum(part[:2]), corners[:, 2:].minimum(part[2:])), 1)
    return (inside - part[:2].repeat(2)) / (part[2:] - part[:2]).repeat(2)


def cut(picture: Image.Image, part: Tensor) -> Image.Image:
    """The part's pixels."""
    left, top, right, bottom = (part * torch.tensor(picture.size * 2)).int().tolist()
    return picture.crop((left, top, right, bottom))
