"""The augmentation of the data-loading study, the same on the CPU and on the GPU."""

from __future__ import annotations

import math

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

CHANCE = 0.5
"""Of each of the three changes."""
DEGREES = 45.0
SCALES = (0.9, 1.1)
SHIFT = 1 / 16
"""Of a side."""


class Affine(msgspec.Struct, frozen=True):
    """Where a pixel's value comes from: turned by ``radians`` and divided by ``scale`` around the centre, shifted."""

    radians: float
    scale: float
    down: float
    """Shares of the height and of the width."""
    right: float


class Change(msgspec.Struct, frozen=True):
    """What is done to one image."""

    affine: Affine | None
    mirror: bool
    """Left and right change places."""
    upend: bool
    """Top and bottom change places."""


def draw_change() -> Change:
    """A random one, from torch's generator of the CPU."""
    turn, scale, down, right, *chances = torch.rand(7, dtype=torch.float64).tolist()
    moved, mirror, upend = (chance < CHANCE for chance in chances)
    affine = Affine(
        radians=math.radians(DEGREES * (2 * turn - 1)),
        scale=SCALES[0] + (SCALES[1] - SCALES[0]) * scale,
        down=SHIFT * (2 * down - 1),
        right=SHIFT * (2 * right - 1),
    )
    return Change(affine if moved else None, mirror, upend)


def changed(change: Change, features: Tensor, labels: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An image after its change.

    ``features``: [H, W, C] of any floating-point type, which they keep; the arithmetic is fp32. ``labels``: int64
    [H, W]. ``valid``: bool [H, W]. What comes from outside is reflected at the edge of the image.
    """
    if change.affine:
        grid = _sources(change.affine, labels)
        moved = _sampled(features.float().permute(2, 0, 1), grid, "bilinear")
        features = moved.to(features.dtype).permute(1, 2, 0)
        masks = _sampled(torch.stack([labels.float(), valid.float()]), grid, "nearest")
        labels, valid = masks[0].to(labels.dtype), masks[1].to(valid.dtype)
    sides = [side for side, wanted in enumerate((change.upend, change.mirror)) if wanted]
    if sides:
        features, labels, valid = features.flip(sides), labels.flip(sides), valid.flip(sides)
    return features, labels, valid


def _sources(affine: Affine, labels: Tensor) -> Tensor:
    """Where the value of each pixel comes from [1, H, W, 2], in torch's coordinates: -1 to 1 from edge to edge.

    Made where the labels are, of scalars, so that nothing has to be copied to the device.
    """
    height, width = labels.shape
    cosine, sine = math.cos(affine.radians) / affine.scale, math.sin(affine.radians) / affine.scale
    y, x = ((2 * torch.arange(side, device=labels.device) + 1) / side - 1 for side in (height, width))
    across = cosine * x - sine * height / width * y[:, None] + 2 * affine.right
    along = sine * width / height * x + cosine * y[:, None] + 2 * affine.down
    return torch.stack([across, along], -1)[None]


def _sampled(planes: Tensor, grid: Tensor, mode: str) -> Tensor:
    """Planes [C, H, W] at the places of the grid."""
    return F.grid_sample(planes[None], grid, mode=mode, padding_mode="reflection", align_corners=False)[0]
