"""What both workloads of the suite make of a volume: patches for training, blocks with a halo for inference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.datasets.volumes.cremi import Volume
from milabench_ng.model.errors import InputError

Corner = tuple[int, int, int]
EPSILON = 1e-6
"""Keeps the normalisation of a uniform patch finite."""


class Patches(Dataset[tuple[Tensor, Tensor]]):
    """Patches of a volume with labels: normalised voxels and the foreground, both float32 [1, D, H, W].

    The index of a patch is its first corner.
    """

    def __init__(self, volume: Volume, sides: Mapping[str, int]) -> None:
        """``sides``: of a patch, in voxels by the names of their options. Raises InputError if none fits."""
        check_fit(volume, sides)
        self.volume = volume
        self.sides = tuple(sides.values())
        self.length = math.prod(volume.shape) // math.prod(self.sides)
        """As many patches as have the volume's voxels together."""

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, corner: Corner) -> tuple[Tensor, Tensor]:
        depth, height, width = (slice(start, start + side) for start, side in zip(corner, self.sides, strict=True))
        raw, foreground = self.volume[depth, height, width]
        return torch.from_numpy(normalised(raw)[None]), torch.from_numpy(foreground.astype(np.float32)[None])

    def corners(self, generator: torch.Generator) -> Iterator[Corner]:
        """An epoch of corners, each anywhere in the volume."""
        room = [side - patch + 1 for side, patch in zip(self.volume.shape, self.sides, strict=True)]
        for _ in range(self.length):
            depth, height, width = (int(torch.randint(places, (), generator=generator)) for places in room)
            yield depth, height, width


class Blocks(Dataset[Tensor]):
    """The blocks of a volume in order, each with its halo, normalised: float32 [1, D, H, W].

    What lies outside the volume is 0 before the normalisation, which includes it.
    """

    def __init__(self, volume: Volume, block: Mapping[str, int], halo: Mapping[str, int]) -> None:
        """``block``: sides without the halo, in voxels by the names of their options. ``halo``: on either side.

        Raises InputError if a block is larger than the volume.
        """
        check_fit(volume, block)
        self.volume = volume
        self.block = tuple(block.values())
        self.halo = tuple(halo.values())
        starts = (range(0, whole, side) for whole, side in zip(volume.shape, self.block, strict=True))
        self.corners = list(itertools.product(*starts))

    def __len__(self) -> int:
        return len(self.corners)

    def __getitem__(self, index: int) -> Tensor:
        box, missing = [], []
        sides = zip(self.corners[index], self.block, self.halo, self.volume.shape, strict=True)
        for start, side, halo, whole in sides:
            first, beyond = start - halo, start + side + halo
            box.append(slice(max(0, first), min(whole, beyond)))
            missing.append((max(0, -first), max(0, beyond - whole)))
        raw, _ = self.volume[box[0], box[1], box[2]]
        return torch.from_numpy(normalised(np.pad(raw, missing))[None])


def normalised(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The voxels in units of their standard deviation from their mean."""
    values = raw.astype(np.float32)
    values -= values.mean()
    values /= values.std() + EPSILON
    return values


def check_fit(volume: Volume, sides: Mapping[str, int]) -> None:
    """Raise InputError unless a box of these ``sides``, in voxels by the names of their options, fits in the volume."""
    voxels = " x ".join(map(str, volume.shape))
    for (name, side), whole in zip(sides.items(), volume.shape, strict=True):
        if side > whole:
            raise InputError(
                f"--{name.replace('_', '-')} {side}: the volume in {volume.file} has {voxels} voxels. "
                f"Use at most {whole}, or a larger data scale"
            )
