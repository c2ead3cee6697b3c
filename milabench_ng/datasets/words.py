"""Building blocks of text twins: invented words, frequencies that follow Zipf's law, and cutting of large texts.

All numbers that determine a byte are integers, so that the bytes are the same on every machine.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"


def zipf(types: int, shift: int, power: int = 1) -> Integers:
    """Weights that fall with the rank r as (r + shift)^-power (Zipf-Mandelbrot); the largest is about 2^40."""
    weights: Integers = (1 << 40) * shift**power // (np.arange(types, dtype=np.int64) + shift) ** power
    return weights


def apportion(weights: Integers, total: int) -> Integers:
    """Counts in proportion to `weights` that sum to `total`; the rounding remainder goes to the first ones."""
    spare = total.bit_length() + int(weights.max()).bit_length() - 62  # bits too many for a product in 64
    parts = weights >> max(0, spare)
    counts: Integers = parts * total // parts.sum()
    counts[: total - int(counts.sum())] += 1
    return counts


def draw(rng: np.random.Generator, cumulative: Integers, count: int) -> Integers:
    """`count` ranks with the probabilities whose cumulative weights are given."""
    return np.searchsorted(cumulative, rng.integers(0, cumulative[-1], count), side="right")


def invent(rng: np.random.Generator, count: int, shortest: int) -> list[str]:
    """`count` different words of at least `shortest` letters, rarer ones longer (Zipf's law of abbreviation)."""
    words: dict[str, None] = {}
    while len(words) < count:
        letters = shortest + len(words).bit_length() // 2
        rolls = rng.integers(0, len(CONSONANTS) * len(VOWELS), letters + 2).tolist()
        word = "".join(
            VOWELS[roll % len(VOWELS)] if place % 2 else CONSONANTS[roll % len(CONSONANTS)]
            for place, roll in enumerate(rolls)
        )
        first = rolls[-1] % 2
        words[word[first : first + letters]] = None
    return list(words)


def cut(path: Path, size: int) -> list[tuple[int, int]]:
    """Cut the text in `path` into pieces of whole lines of about `size` bytes; returns their start and end offsets."""
    end = path.stat().st_size
    borders = [0]
    with open(path, "rb") as file:
        while borders[-1] < end:
            file.seek(min(borders[-1] + size, end))
            file.readline()
            borders.append(min(file.tell(), end))
    return list(itertools.pairwise(borders))


def read_piece(path: Path, piece: tuple[int, int]) -> bytes:
    """The bytes of one piece from `cut`."""
    with open(path, "rb") as file:
        file.seek(piece[0])
        return file.read(piece[1] - piece[0])


def join(pieces: Sequence[Path], target: Path) -> None:
    """Append `pieces` to one file, removing each."""
    with open(target, "wb") as whole:
        for piece in pieces:
            with open(piece, "rb") as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            piece.unlink()
