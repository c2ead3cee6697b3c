"""Draws hyperspectral images that cost what real ones cost to read and decompress.

Low-rank spectra, smooth abundances, noise in each value. Everything up to the noise is exact in float32, so that no
order of summation, and so no library, changes a bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from milabench_ng.datasets.base import random_stream

Cube = npt.NDArray[np.float32]
ENDMEMBERS = 8
"""Substances that each spectrum mixes."""
WAVELENGTHS_NM = (500.0, 1000.0)
DIPS = 4
LEVELS = 1023
"""Largest value of spectra and abundances: sums of eight products stay below 2^24."""
CELL = 32
"""Pixels between the points of an abundance map."""
UNIT = 2.0**-28
"""Makes values of some 1/100, as in spectra of 100 channels that are normalised to a sum of 1."""
NOISE = 0.1
"""Standard deviation of the noise, relative to the value: images compress as the study's do."""
SITES = 48
CLASSES = 19
INVALID = 255
"""Label of pixels that do not count."""
INVALID_SITES = 14
"""Of `SITES`: leaves some 70 % of the pixels valid."""


def image(seed: int, number: int, shape: tuple[int, int, int]) -> Cube:
    """Image ``number``: reflectances [height, width, channels]; both sides are multiples of `CELL`."""
    height, width, channels = shape
    rng = random_stream(seed, 1, number)
    points = rng.integers(0, LEVELS + 1, (ENDMEMBERS, height // CELL + 1, width // CELL + 1))
    maps = np.floor(_between(height) @ points.astype(np.float32) @ _between(width).T)
    smooth: Cube = maps.reshape(ENDMEMBERS, -1).T @ spectra(seed, channels)
    noise = rng.integers(0, 256, (4, *smooth.shape), np.uint8).sum(0, dtype=np.uint16)
    smooth *= noise * np.float32(UNIT * NOISE / 147.8) + np.float32(UNIT * (1 - NOISE * 510 / 147.8))
    return smooth.reshape(shape)


def spectra(seed: int, channels: int) -> Cube:
    """Integers [ENDMEMBERS, channels]: a sigmoid over the wavelength with four Gaussian absorption dips each."""
    rng = random_stream(seed, 0)
    found = np.empty((ENDMEMBERS, channels))
    nm = np.linspace(*WAVELENGTHS_NM, channels)
    for spectrum in found:
        middle, width = rng.uniform(520, 700), rng.uniform(20, 80)
        spectrum[:] = 0.3 + 0.7 / (1 + np.exp((middle - nm) / width))
        for _ in range(DIPS):
            centre, width, depth = rng.uniform(500, 1000), rng.uniform(8, 30), rng.uniform(0.1, 0.5)
            spectrum *= 1 - depth * np.exp(-0.5 * ((nm - centre) / width) ** 2)
    return np.rint(LEVELS * found).astype(np.float32)  # what libraries compute differently does not survive


def labels(seed: int, number: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    """The class of each pixel of image ``number``, or `INVALID`: regions around random sites."""
    rng = random_stream(seed, 2, number)
    classes = np.arange(SITES, dtype=np.uint8) % CLASSES
    classes[rng.permutation(SITES)[:INVALID_SITES]] = INVALID
    rows, columns = np.arange(height, dtype=np.int32)[:, None], np.arange(width, dtype=np.int32)
    nearest = np.zeros((height, width), np.uint8)
    least = np.full((height, width), np.iinfo(np.int32).max, np.int32)
    for own, row, column in zip(classes, rng.integers(0, height, SITES), rng.integers(0, width, SITES), strict=True):
        distance = (rows - np.int32(row)) ** 2 + (columns - np.int32(column)) ** 2
        nearer = distance < least
        nearest[nearer], least[nearer] = own, distance[nearer]
    return nearest


def _between(length: int) -> Cube:
    """Linear interpolation [length, points] between points `CELL` apart; its weights are exact."""
    place = np.arange(length) / CELL
    points = np.arange(length // CELL + 1)
    weights: Cube = np.maximum(0, 1 - np.abs(place[:, None] - points)).astype(np.float32)
    return weights
