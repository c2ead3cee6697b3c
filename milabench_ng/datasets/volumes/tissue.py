"""Draws volumes that cost what electron micrographs of tissue cost to read and decompress. Integers only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from milabench_ng.datasets.base import random_stream

Integers = npt.NDArray[np.int32]
OCTAVES = (((8, 128, 128), 7), ((4, 16, 16), 1), ((2, 8, 8), 1))
"""Distances of the lattices' points in voxels, and the weight of each in eighths."""
GRAIN = 3
"""Weight of the grain, the sum of four random bytes, in 64ths."""
CLEFTS = (8, 64, 64)
CLEFT_LEVEL = 221
"""The smooth noise is above this in some 0.5 % of the voxels."""


def micrograph(seed: int, corner: tuple[int, int, int], shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    """The voxels of a box: three octaves of smooth noise and fine grain, mean 128, standard deviation 35.

    Boxes of one seed fit together. ``corner`` and ``shape`` are multiples of (8, 128, 128).
    """
    smooth = np.zeros(shape, np.int32)
    for octave, (steps, weight) in enumerate(OCTAVES):
        smooth += weight * (_noise(seed, octave, steps, corner, shape) - 128)
    random = random_stream(seed, len(OCTAVES), *corner).integers(0, 256, (4, *shape), np.uint8)
    grain = random.sum(0, dtype=np.int32) - 510
    drawn: npt.NDArray[np.int32] = 128 + (smooth >> 3) + (GRAIN * grain >> 6)
    return drawn.clip(0, 255).astype(np.uint8)


def clefts(seed: int, corner: tuple[int, int, int], shape: tuple[int, int, int]) -> npt.NDArray[np.bool_]:
    """Where the synaptic clefts of a box are: smooth spots in 0.5 % of the voxels."""
    found: npt.NDArray[np.bool_] = _noise(seed, len(OCTAVES) + 1, CLEFTS, corner, shape) > CLEFT_LEVEL
    return found


def _noise(
    seed: int, octave: int, steps: tuple[int, int, int], corner: tuple[int, int, int], shape: tuple[int, int, int]
) -> Integers:
    """Random bytes on a lattice, with trilinear interpolation between its points: 0 to 255."""
    first = [start // step for start, step in zip(corner, steps, strict=True)]
    points = [side // step + 1 for side, step in zip(shape, steps, strict=True)]
    rows, columns = (range(start, start + count) for start, count in zip(first[1:], points[1:], strict=True))
    values = np.empty(points, np.int32)
    for plane in range(points[0]):
        for row, number in enumerate(rows):
            stream = random_stream(seed, octave, first[0] + plane, number)
            values[plane, row] = stream.integers(0, 256, columns.stop, np.uint8)[columns.start :]
    for axis, step in enumerate(steps):
        values = _between(values, axis, step)
    return values


def _between(values: Integers, axis: int, step: int) -> Integers:
    """``step`` values from each point of ``axis`` towards the next, in equal distances."""
    here, beyond = (np.moveaxis(values, axis, -1)[..., part, None] for part in (slice(-1), slice(1, None)))
    part = np.arange(step, dtype=np.int32)
    filled = (here * (step - part) + beyond * part) // step
    return np.moveaxis(filled.reshape(*filled.shape[:-2], -1), -1, axis)
