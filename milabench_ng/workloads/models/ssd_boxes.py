"""The boxes of SSD300: 8,732 default boxes, their matching to the boxes of a picture, and the loss.

Liu et al., "SSD: Single Shot MultiBox Detector", arXiv:1512.02325, section 2.2.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.ops import box_convert, box_iou

SIDE = 300  # pixels
LEVELS = ((38, 8), (19, 16), (10, 32), (5, 64), (3, 100), (1, 300))
"""Cells across a feature map, and pixels from one cell's centre to the next."""
SCALES = (21, 45, 99, 153, 207, 261, 315)  # pixels: of each level, and of the one that would follow the last
RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
DEFAULTS_PER_CELL = tuple(2 + 2 * len(ratios) for ratios in RATIOS)
CLASSES = 81  # with the background, 0
CENTRE_SCALE, SIZE_SCALE = 10.0, 5.0
"""1 / the variances 0.1 and 0.2 by which offsets are divided."""
OVERLAP = 0.5
NEGATIVES = 3
"""Background boxes in the loss for each positive box."""


def default_boxes() -> Tensor:
    """[8732, 4]: centre, width and height as parts of the picture, in the order of the heads' outputs."""
    boxes = []
    for level, (cells, step) in enumerate(LEVELS):
        small, between = SCALES[level], math.sqrt(SCALES[level] * SCALES[level + 1])
        shapes = [(small, small), (between, between)]
        for ratio in RATIOS[level]:
            long, short = small * math.sqrt(ratio), small / math.sqrt(ratio)
            shapes += [(long, short), (short, long)]
        centres = (torch.arange(cells) + 0.5) * step
        down, across = torch.meshgrid(centres, centres, indexing="ij")
        for width, height in shapes:
            size = torch.tensor((width, height)).expand(cells * cells, 2)
            boxes.append(torch.cat((torch.stack((across, down), -1).reshape(-1, 2), size), 1))
    return (torch.cat(boxes) / SIDE).clamp(0, 1)


class Matcher:
    """Assigns to each default box the box of the picture that it should find."""

    def __init__(self) -> None:
        self.centred = default_boxes()
        self.corners = box_convert(self.centred, "cxcywh", "xyxy")

    def __call__(self, corners: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The targets of the default boxes: offsets [4, 8732] and classes [8732].

        A default box gets the picture's box with which it overlaps most, if that is more than half, otherwise the
        background. The best default box of each of the picture's boxes gets that box in any case.
        """
        overlap = box_iou(corners, self.corners)
        best, owner = overlap.max(0)
        favourite = overlap.argmax(1)
        best[favourite] = 2.0
        owner[favourite] = torch.arange(len(corners))
        classes = labels[owner].where(best > OVERLAP, 0)
        return self.offsets(corners[owner]), classes

    def offsets(self, corners: Tensor) -> Tensor:
        """Positions of boxes [8732, 4] relative to the default boxes, in units of their sizes: [4, 8732]."""
        wanted = box_convert(corners, "xyxy", "cxcywh")
        centre = CENTRE_SCALE * (wanted[:, :2] - self.centred[:, :2]) / self.centred[:, 2:]
        size = SIZE_SCALE * (wanted[:, 2:] / self.centred[:, 2:]).clamp(min=1e-6).log()
        return torch.cat((centre, size), 1).T.contiguous()


def multibox_loss(places: Tensor, scores: Tensor, offsets: Tensor, classes: Tensor) -> Tensor:
    """Smooth L1 of the offsets of positive boxes, and cross entropy of these and of the hardest others.

    ``places`` and ``offsets`` [N, 4, 8732], ``scores`` [N, 81, 8732], ``classes`` [N, 8732]. Each picture's loss is
    divided by its number of positive boxes, then averaged.
    """
    positive = classes > 0
    found = positive.sum(1)
    localisation = (F.smooth_l1_loss(places.float(), offsets.float(), reduction="none").sum(1) * positive).sum(1)
    confusion = F.cross_entropy(scores.float(), classes, reduction="none")
    kept = positive | hardest(confusion.detach().masked_fill(positive, 0), NEGATIVES * found)
    total = localisation + (confusion * kept).sum(1)
    return (total * (found > 0) / found.clamp(min=1)).mean()


def hardest(losses: Tensor, counts: Tensor) -> Tensor:
    """The ``counts[n]`` largest of ``losses[n]`` as a mask, by two sorts as in 2020."""
    rank = losses.argsort(1, descending=True).argsort(1)
    return rank < counts.unsqueeze(1)
