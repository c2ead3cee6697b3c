"""WikiText-103: `wiki.train.tokens`, words separated by blanks; the end of a line is the word <eos>."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from milabench_ng.datasets.base import BINARY, DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.text.wikitext_2 import Words
from milabench_ng.datasets.words import Integers, cut, draw, invent, join, read_piece, zipf

TEXT = "wiki.train.tokens"
TYPES = 267_735  # different words, with <eos> and <unk>
TOKENS = 103_227_021  # with <eos>
PER_LINE = 57  # tokens; the real text has 1,801,350 lines
SHIFT = 2  # Zipf-Mandelbrot, as in WikiText-2
UNKNOWN_RANK = 3  # rank of <unk>
BLOCK = 1_000_000  # tokens per piece of work
PIECE = 8_000_000  # bytes per piece of conversion


class WikiText103(DataSet):
    """WikiText-103 (Merity et al., arXiv:1609.07843). Twin: 103 million tokens, as many different words, Zipf's law.

    A smaller scale has a shorter text, but all 267,735 words: the softmax over them keeps its size. There are no files
    for evaluation, since no launch reads them.
    """

    name = "wikitext-103"
    folder = "wikitext-103"
    version = 1
    scalable = True
    texts = (TEXT,)

    def size(self, scale: float) -> Size:
        tokens = _blocks(scale) * BLOCK
        return Size(files=3, bytes=tokens * 11, core_seconds=1 + tokens * 9e-7)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        words = invent(random_stream(seed, 0), TYPES - 2, shortest=1)
        spelling = np.asarray(["\n", *words[:UNKNOWN_RANK], "<unk>", *words[UNKNOWN_RANK:]], object)
        blocks = _blocks(scale)
        for_each(functools.partial(_write, place, spelling, blocks, seed), blocks, processes, progress)
        join([place / f"{TEXT}.{block}" for block in range(blocks)], place / TEXT)

    def convert(self, place: Path, target: Path, progress: Progress, processes: int) -> None:  # noqa: ARG002 - in order
        """Number the words in the order in which they first occur."""
        numbers: dict[bytes, int] = {}
        parts, pieces = [], cut(place / TEXT, PIECE)
        for done, piece in enumerate(pieces, start=1):
            text = read_piece(place / TEXT, piece).replace(b"\n", b" <eos> ")
            parts.append(np.asarray([numbers.setdefault(word, len(numbers)) for word in text.split()], np.int32))
            progress(done, len(pieces))
        np.save(target / "train.npy", np.concatenate(parts))
        np.save(target / "vocabulary.npy", np.asarray(len(numbers)))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        tokens = np.load(place / BINARY / "train.npy", mmap_mode="r")
        return Words(tokens, int(np.load(place / BINARY / "vocabulary.npy")), transform)


def _blocks(scale: float) -> int:
    return max(1, round(TOKENS * scale / BLOCK))


def _weights() -> Integers:
    """How frequent each word is; word 0 is <eos>."""
    words = zipf(TYPES - 1, SHIFT)
    return np.concatenate(([int(words.sum()) // (PER_LINE - 1)], words))


def _write(place: Path, spelling: npt.NDArray[np.object_], blocks: int, seed: int, block: int) -> None:
    """Write one block: its part of all words, so that each occurs, and words drawn by their frequency, mixed."""
    rng = random_stream(seed, 1, block)
    own = np.arange(block, TYPES, blocks)
    drawn = draw(rng, np.cumsum(_weights()), BLOCK - 1 - len(own))
    text = " ".join(spelling[rng.permutation(np.concatenate((own, drawn)))])
    (place / f"{TEXT}.{block}").write_text(f" {text} \n", "utf-8", newline="\n")
