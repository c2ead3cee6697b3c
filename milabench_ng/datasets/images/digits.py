"""Handwritten-looking digits of 28 x 28 pixels, drawn many at a time.

A digit is a fixed skeleton, bent, slanted, scaled and shifted at random, along which a pen of random width runs.
All arithmetic that decides a pixel is on integers, so that the bytes are the same on every machine.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

PixelIntegers = npt.NDArray[np.int64]
Stroke = list[tuple[float, float]]

SIDE = 28  # pixels
CLASSES = 10
POINTS = 72  # pen positions of a digit
KNOTS = 5  # where the pen's path is bent
UNIT = 64  # parts of a pixel
THINNEST, THICKEST, CUT = (
    3,
    19,
    10,
)  # pen and paper: they give MNIST's mean 0.131, deviation 0.308 and 19 % of pixels with ink


def draw(rng: np.random.Generator, labels: PixelIntegers) -> npt.NDArray[np.uint8]:
    """Images of the given digits, shape (len(labels), SIDE, SIDE), 0 background to 255 ink."""
    return _ink(_paths(rng, labels), rng.integers(THINNEST, THICKEST, len(labels)))


def _paths(rng: np.random.Generator, labels: PixelIntegers) -> PixelIntegers:
    """Pen positions (digit, point, x or y) in parts of a pixel."""
    count = len(labels)
    bends = rng.integers(-80, 81, (count, KNOTS, 2))
    points = SKELETONS[labels] + (np.einsum("pk,nkd->npd", BEND, bends) >> 8)
    turn, slant = rng.integers(-45, 46, count), rng.integers(-70, 71, count)  # tangents in 1/256
    wide, tall = rng.integers(175, 275, count), rng.integers(220, 275, count)
    x, y = points[:, :, 0], points[:, :, 1]
    across = (wide[:, None] * x - (turn + slant)[:, None] * y) >> 8
    down = (turn[:, None] * x + tall[:, None] * y) >> 8
    shift = rng.integers(-UNIT, UNIT + 1, (count, 1, 2)) + SIDE * UNIT // 2
    return np.clip(np.stack((across, down), axis=2) + shift, 0, (SIDE - 2) * UNIT)


def _ink(paths: PixelIntegers, width: PixelIntegers) -> npt.NDArray[np.uint8]:
    """Leave ink around each pen position: spread over its four pixels, then over their neighbours (1 2 1)."""
    count = len(paths)
    cell, part = paths // UNIT, paths % UNIT
    first = np.arange(count)[:, None] * SIDE * SIDE + cell[:, :, 1] * SIDE + cell[:, :, 0]
    right, below = part[:, :, 0], part[:, :, 1]
    canvas = np.zeros(count * SIDE * SIDE, np.int64)
    for offset, weight in (
        (0, (UNIT - right) * (UNIT - below)),
        (1, right * (UNIT - below)),
        (SIDE, (UNIT - right) * below),
        (SIDE + 1, right * below),
    ):
        drops = np.bincount((first + offset).ravel(), weight.ravel(), canvas.size)  # exact: sums below 2**53
        canvas += drops.astype(np.int64)
    ink = np.pad(canvas.reshape(count, SIDE, SIDE), ((0, 0), (1, 1), (1, 1)))
    ink = ink[:, :-2] + 2 * ink[:, 1:-1] + ink[:, 2:]
    ink = ink[:, :, :-2] + 2 * ink[:, :, 1:-1] + ink[:, :, 2:]
    ink = (ink * width[:, None, None] >> 10) - CUT
    return np.clip(ink, 0, 255).astype(np.uint8)


def _arc(x: float, y: float, wide: float, tall: float, start: float, end: float) -> Stroke:
    """Part of an ellipse around (x, y) in 24 points; angles in degrees, clockwise from the right."""
    angles = [math.radians(start + (end - start) * i / 23) for i in range(24)]
    return [(x + wide * math.cos(angle), y + tall * math.sin(angle)) for angle in angles]


# Strokes in pixels from the centre, x to the right, y down.
_STROKES: tuple[list[Stroke], ...] = (
    [_arc(0, 0, 6, 8.5, -90, 270)],
    [[(-3, -5.5), (1, -8.5), (0, 8.5)]],
    [[*_arc(0, -4, 5, 4.5, 190, 390), (-5.5, 8), (6, 8)]],
    [_arc(-0.5, -4.3, 5, 4.2, 200, 440) + _arc(-0.5, 4.2, 5.5, 4.4, -80, 150)],
    [[(-3, -8.5), (-5, 1), (6, 0.5)], [(3.5, -7), (2.5, 8.5)]],
    [[(5, -8.5), (-4, -8), (-4.5, -1), *_arc(-0.5, 3.2, 5.5, 5, -100, 150)]],
    [[(3, -8.5), (-3, -2), *_arc(0, 3.6, 5, 4.8, 200, -160)]],
    [[(-6, -7.5), (5.5, -8), (2, 0), (-1, 8.5)]],
    [_arc(0, -4.4, 4, 4, 90, 450), _arc(0, 4.3, 5, 4.4, -90, 270)],
    [[*_arc(0, -3.8, 4.6, 4.6, 0, -360), (4, 2), (2, 8.5)]],
)


def _skeleton(strokes: list[Stroke]) -> PixelIntegers:
    """POINTS pen positions at equal distances along the strokes, in parts of a pixel."""
    starts = [point for stroke in strokes for point in stroke[:-1]]
    ends = [point for stroke in strokes for point in stroke[1:]]
    lengths = np.hypot(*(np.asarray(ends) - np.asarray(starts)).T)
    along = np.concatenate(([0.0], np.cumsum(lengths)))
    at = (np.arange(POINTS) + 0.5) / POINTS * along[-1]
    piece = np.searchsorted(along, at, side="right") - 1
    part = ((at - along[piece]) / lengths[piece])[:, None]
    points = np.asarray(starts)[piece] * (1 - part) + np.asarray(ends)[piece] * part
    skeleton: PixelIntegers = np.rint(points * UNIT).astype(np.int64)
    return skeleton


def _bend() -> PixelIntegers:
    """Weights in 1/256 that carry displacements of the knots to the points between them, linearly."""
    at = np.arange(POINTS) * (KNOTS - 1) / (POINTS - 1)
    return np.rint(256 * np.clip(1 - abs(at[:, None] - np.arange(KNOTS)), 0, 1)).astype(np.int64)


SKELETONS: PixelIntegers = np.stack([_skeleton(strokes) for strokes in _STROKES])
BEND: PixelIntegers = _bend()
