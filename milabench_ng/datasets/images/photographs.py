"""JPEG files with the statistics of photographs, drawn in a few milliseconds each.

A decoder's cost depends on the number of pixels and of non-zero coefficients: noise is no substitute for a photograph.
A picture here is a *dead leaves* image, random shapes that occlude one another with a power law of sizes, the
classic model of natural images (Lee, Mumford, Huang, "Occlusion models for natural images", IJCV 41, 2001), each
leaf with its part of a texture whose amplitude falls as 1/f (Field, JOSA A 4(12), 1987).

Pixels come from integers and exactly rounded operations: they are the same on every machine. The bytes of a file also
depend on the JPEG library.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from milabench_ng.datasets.base import random_stream

LEAVES = 320
SMALLEST_LEAF = 0.02  # radius as a part of the picture's shorter side
LARGEST_LEAF = 0.7
TEXTURE_SIDE = 1664  # pixels; at least the longest side of a picture
OCTAVES = 8


class Look(msgspec.Struct, frozen=True):
    """What the pictures of one class have in common, so that a network has something to learn."""

    palette: tuple[tuple[int, int, int], ...]
    corners: int  # of each leaf; 0: ellipses
    roughness: int  # upper bound of the texture's gain, in 1/64


def look(seed: int, label: int) -> Look:
    rng = random_stream(seed, 1, label)
    tint = rng.integers(-50, 51, 3)
    luminance = rng.integers(30, 226, (5, 1))
    colours = np.clip(luminance + tint + rng.integers(-25, 26, (5, 3)), 0, 255)
    return Look(
        palette=tuple((int(r), int(g), int(b)) for r, g, b in colours),
        corners=int(rng.choice((0, 3, 4, 5))),
        roughness=int(rng.integers(20, 90)),
    )


class Thing(msgspec.Struct, frozen=True):
    """Something in a picture: a lozenge that fills a box (pixels) and has the colour and texture of a class."""

    look: Look
    left: int
    top: int
    right: int
    bottom: int

    @property
    def corners(self) -> tuple[tuple[int, int], ...]:
        """Top, right, bottom, left."""
        across, down = (self.left + self.right) // 2, (self.top + self.bottom) // 2
        return (across, self.top), (self.right, down), (across, self.bottom), (self.left, down)


@functools.cache
def texture(seed: int) -> npt.NDArray[np.int16]:
    """Colour texture of TEXTURE_SIDE squared pixels around zero: octaves of white noise with equal amplitudes.

    Equal power in each octave is an amplitude of 1/f in two dimensions. Most of it is luminance, as in photographs.
    Call it before starting processes: it takes half a second and 16 MiB, and they inherit it.
    """
    rng = random_stream(seed, 2)
    total = np.zeros((TEXTURE_SIDE, TEXTURE_SIDE, 3), np.int16)
    for octave in range(OCTAVES):
        side = TEXTURE_SIDE >> octave
        grey = rng.integers(0, 256, (side, side, 1), dtype=np.int16)
        colour = rng.integers(0, 256, (side, side, 3), dtype=np.int16)
        coarse = Image.fromarray(((3 * grey + colour) >> 2).astype(np.uint8))
        fine = coarse.resize((TEXTURE_SIDE, TEXTURE_SIDE), Image.Resampling.BICUBIC)
        total += (np.asarray(fine, np.int16) - 128) >> 1
    return total


def photograph(
    rng: np.random.Generator,
    look: Look,
    width: int,
    height: int,
    texture: npt.NDArray[np.int16],
    things: Sequence[Thing] = (),
) -> Image.Image:
    """Draw a picture of `width` x `height` pixels (at most TEXTURE_SIDE each) in the given look, `things` in front."""
    canvas = _leaves(rng, look, width, height)
    for thing in things:
        ImageDraw.Draw(canvas).polygon(thing.corners, fill=(*thing.look.palette[0], thing.look.roughness))
    leaves = canvas.filter(ImageFilter.BoxBlur(float(rng.integers(1, 8)) / 10))
    layers = np.asarray(leaves, np.int16)
    side = texture.shape[0]
    top, left = int(rng.integers(side - height + 1)), int(rng.integers(side - width + 1))
    grain = texture[top : top + height, left : left + width, :: 1 if rng.integers(2) else -1]
    pixels = grain * layers[:, :, 3:]
    pixels >>= 6
    pixels += layers[:, :, :3]
    return Image.fromarray(pixels.clip(0, 255, out=pixels).astype(np.uint8))


def jpeg(picture: Image.Image, quality: int) -> bytes:
    """Encode as baseline JPEG with 4:2:0 chroma subsampling, the usual form of photographs."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    return buffer.getvalue()


def _leaves(rng: np.random.Generator, look: Look, width: int, height: int) -> Image.Image:
    """The occluding shapes: colour in RGB, the gain of the texture in A."""
    short = min(width, height)
    radii = _power_law(rng, SMALLEST_LEAF * short, LARGEST_LEAF * short)
    across = rng.integers(0, width, LEAVES)
    down = rng.integers(0, height, LEAVES)
    squeeze = rng.integers(50, 101, LEAVES) / 100
    turn = rng.integers(0, 360, LEAVES)
    corners = np.where(rng.integers(0, 4, LEAVES) > 0, look.corners, rng.choice((0, 3, 4), LEAVES))
    palette = np.asarray(look.palette)
    shade = rng.integers(-45, 46, (LEAVES, 1)) + rng.integers(-15, 16, (LEAVES, 3))
    colours = np.clip(palette[rng.integers(0, len(palette), LEAVES)] + shade, 0, 255)
    gains = rng.integers(6, look.roughness, (LEAVES, 1))
    fills = [(r, g, b, a) for r, g, b, a in np.hstack((colours, gains)).tolist()]

    canvas = Image.new("RGBA", (width, height), fills[0])
    draw = ImageDraw.Draw(canvas)
    leaf = zip(
        across.tolist(),
        down.tolist(),
        radii.tolist(),
        squeeze.tolist(),
        turn.tolist(),
        corners.tolist(),
        fills,
        strict=True,
    )
    for x, y, radius, flat, angle, points, fill in leaf:
        if points:
            draw.regular_polygon((x, y, radius), points, rotation=angle, fill=fill)
        else:
            draw.ellipse((x - radius, y - radius * flat, x + radius, y + radius * flat), fill=fill)
    return canvas


def _power_law(rng: np.random.Generator, smallest: float, largest: float) -> npt.NDArray[np.int64]:
    """Radii in pixels with density r^-3, which makes the model scale invariant."""
    chance = rng.random(LEAVES)
    return np.ceil(smallest / np.sqrt(1 - chance * (1 - (smallest / largest) ** 2))).astype(np.int64)


def size_of(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height in pixels as in ILSVRC 2012: mostly 500 on the long side, some small, few large up to 1,600."""
    kind = int(rng.integers(100))
    if kind < 58:
        long, short = 500, 375
    elif kind < 76:
        long, short = 500, int(rng.choice((333, 334, 332, 400, 281)))
    elif kind < 81:
        long, short = 500, 500
    elif kind < 95:
        long = int(rng.integers(120, 500))
        short = long * int(rng.integers(60, 101)) // 100
    else:
        long = 500 + 1100 * int(rng.integers(1, 1001)) ** 3 // 1000**3
        short = long * int(rng.choice((56, 67, 75, 75))) // 100
    return (long, short) if rng.integers(100) < 72 else (short, long)
