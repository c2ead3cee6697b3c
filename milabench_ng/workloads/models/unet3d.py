"""3D-UNet: an encoder and a decoder of volumes, joined at every level."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from milabench_ng.model.errors import InputError

FEATURES = (32, 64, 128, 256, 512)
"""Channels of each level; the last is the bottleneck's."""
MULTIPLE = 2 ** (len(FEATURES) - 1)
"""Each level halves all sides, so these must be multiples of this."""


class UNet3d(nn.Module):
    """A 3D-UNet (Cicek et al., arXiv:1606.06650) of depth 4 without normalisation layers; 22,575,329 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d(2)
        self.encoder = nn.ModuleList(convolutions(before, after) for before, after in pairwise((1, *FEATURES)))
        upwards = list(pairwise(reversed(FEATURES)))
        self.up = nn.ModuleList(nn.ConvTranspose3d(below, here, 2, stride=2) for below, here in upwards)
        self.decoder = nn.ModuleList(convolutions(below, here) for below, here in upwards)
        self.out = nn.Conv3d(FEATURES[0], 1, 1)

    def forward(self, volume: Tensor) -> Tensor:
        """Volumes [N, 1, D, H, W], sides being multiples of 16, to logits of the same shape."""
        first, *deeper = self.encoder
        levels = [first(volume)]
        for block in deeper:
            levels.append(block(self.pool(levels[-1])))
        features = levels.pop()
        for up, block in zip(self.up, self.decoder, strict=True):
            features = block(torch.cat((up(features), levels.pop()), 1))
        logits: Tensor = self.out(features)
        return logits


def convolutions(before: int, after: int) -> nn.Sequential:
    """Two 3 x 3 x 3 convolutions, each followed by a ReLU, from ``before`` to ``after`` channels."""
    return nn.Sequential(
        nn.Conv3d(before, after, 3, padding=1), nn.ReLU(), nn.Conv3d(after, after, 3, padding=1), nn.ReLU()
    )


def check_sides(sides: Mapping[str, int]) -> None:
    """Raise InputError unless the network can take volumes of these ``sides``, in voxels by their names."""
    for name, side in sides.items():
        if side % MULTIPLE:
            lower = side // MULTIPLE * MULTIPLE
            near = " or ".join(str(each) for each in (lower, lower + MULTIPLE) if each)
            raise InputError(
                f"{name} is {side} voxels; the network halves each side four times, so it must be a multiple of "
                f"{MULTIPLE}: choose {near}"
            )
