"""What Mask R-CNN's loader processes do with a picture and its objects, and in which order pictures are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from milabench_ng.datasets.images.coco_index import Array
from milabench_ng.workloads.models.ssd_pictures import mirrored

Target = dict[str, Tensor]


def with_masks(
    picture: Image.Image, corners: Tensor, labels: Tensor, outlines: list[list[Array]]
) -> tuple[Tensor, Target]:
    """Picture, uint8 [3, H, W], and its objects as torchvision's detectors take them; every second one is mirrored.

    Boxes: float32 [n, 4], in pixels. Labels: int64 [n]. Masks: uint8 [n, H, W].
    """
    masks = np.stack([mask(outline, picture.size) for outline in outlines])
    pixels = np.asarray(picture)
    if torch.rand(()) < 0.5:
        pixels, masks, corners = pixels[:, ::-1], masks[:, :, ::-1], mirrored(corners)
    boxes = corners * torch.tensor(picture.size * 2)
    shown = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    return shown, {"boxes": boxes, "labels": labels, "masks": torch.from_numpy(np.ascontiguousarray(masks))}


def mask(outline: list[Array], size: tuple[int, int]) -> Array:
    """1 in the rings of an object, 0 elsewhere, uint8 [H, W]; ``size``: width and height."""
    canvas = Image.new("L", size)
    for ring in outline:
        ImageDraw.Draw(canvas).polygon((ring * size).flatten().tolist(), fill=1)
    return np.asarray(canvas)


class OneOrientation:
    """An order of samples in which a batch has upright pictures only, or none."""

    def __init__(self, upright: Array, batch_size: int) -> None:
        """``upright``: which samples are, bool."""
        self._groups = [torch.from_numpy(np.flatnonzero(upright == each)) for each in (False, True)]
        self._batch_size = batch_size

    def __call__(self, generator: torch.Generator) -> Iterator[int]:
        """One epoch of sample numbers, batch after batch; what does not fill a batch is left out."""
        batches: list[Tensor] = []
        for group in self._groups:
            mixed = group[torch.randperm(len(group), generator=generator)]
            batches += [batch for batch in torch.split(mixed, self._batch_size) if len(batch) == self._batch_size]
        for number in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[number].tolist()
