"""Texts as token ids, packed one after the other: `train.bin`, little-endian, each document behind the id 0."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.text.wikitext_2 import Words
from milabench_ng.datasets.words import Integers, draw, join, zipf

FILE = "train.bin"
BLOCKS = 128
BLOCK = 1 << 20  # tokens per piece of work: 134,217,728 in all
BEGIN = 0  # the id before each document
SHIFT = 2  # Zipf-Mandelbrot, as in WikiText-2
MEDIAN, SPREAD = 400, 1.2  # of the log-normal lengths of documents, in tokens: the mean is 822
LENGTHS = 1024  # different lengths


class Tokens32k(DataSet):
    """Documents of 32,768 different tokens. Twin: 134 million tokens, half of them foretold by the one before.

    A token is with probability 1/2 the one that a fixed permutation says follows the last, so a model has something to
    learn, and else drawn by Zipf's law. Lengths of documents are log-normal; they are packed without padding.
    """

    name = "tokens-32k"
    folder = "tokens-32k"
    version = 1
    scalable = True
    types: ClassVar[int] = 32_768
    kind_of_id: ClassVar[str] = "<u2"

    def size(self, scale: float) -> Size:
        tokens = _blocks(scale) * BLOCK
        return Size(files=1, bytes=tokens * np.dtype(self.kind_of_id).itemsize, core_seconds=0.2 + tokens * 3e-7)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        following = np.concatenate(([BEGIN], 1 + random_stream(seed, 0).permutation(self.types - 1)))
        cumulative = np.cumsum(zipf(self.types - 1, SHIFT))
        write = functools.partial(_write, place, self.kind_of_id, following, cumulative, seed)
        for_each(write, _blocks(scale), processes, progress)
        join([place / f"{FILE}.{block}" for block in range(_blocks(scale))], place / FILE)

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        return Words(np.memmap(place / FILE, self.kind_of_id, mode="r"), self.types, transform)

    def looks_real(self, place: Path) -> bool:
        return (place / FILE).is_file()


class Tokens128k(Tokens32k):
    """The same with 128,256 different tokens, as many as Llama 3 has."""

    name = "tokens-128k"
    folder = "tokens-128k"
    types = 128_256
    kind_of_id = "<u4"


def _blocks(scale: float) -> int:
    return max(1, round(BLOCKS * scale))


def _write(place: Path, kind: str, following: Integers, cumulative: Integers, seed: int, block: int) -> None:
    tokens = make_block(random_stream(seed, 1, block), following, cumulative)
    tokens.astype(kind).tofile(place / f"{FILE}.{block}")


def make_block(rng: np.random.Generator, following: Integers, cumulative: Integers) -> Integers:
    """One block of tokens: documents of drawn lengths, the last cut off."""
    tokens = 1 + draw(rng, cumulative, BLOCK)
    foretold = rng.integers(0, 2, BLOCK).astype(bool)
    begins = np.concatenate(([0], np.cumsum(1 + rng.choice(lengths(), BLOCK // 16))))
    begins = begins[begins < BLOCK]
    tokens[begins] = BEGIN
    foretold[begins] = False
    foretold[begins[begins < BLOCK - 1] + 1] = False  # nothing follows the mark before a document
    places = np.arange(BLOCK)
    since = places - np.maximum.accumulate(np.where(foretold, 0, places))  # the last one that was drawn
    for steps in range(1, int(since.max()) + 1):
        at = np.flatnonzero(since == steps)
        tokens[at] = following[tokens[at - 1]]
    return tokens


def lengths() -> npt.NDArray[np.int64]:
    """Lengths of documents, each as likely as the others: quantiles of their log-normal distribution."""
    quantiles = ((at + 0.5) / LENGTHS for at in range(LENGTHS))
    return np.asarray([max(1, round(MEDIAN * math.exp(SPREAD * NormalDist().inv_cdf(at)))) for at in quantiles])
