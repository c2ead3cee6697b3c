"""Parallel texts, split into sub-words: two files with one sentence per line, and a vocabulary."""

from __future__ import annotations

import functools
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.datasets.base import BINARY, DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.words import Integers, cut, draw, invent, join, read_piece, zipf
from milabench_ng.model.errors import InputError

LANGUAGES = ("en", "de")
VOCABULARY = "vocab.bpe.32000"
SPECIAL = 4  # numbers before the vocabulary's first line
PAD, UNKNOWN, BEGIN, END = range(SPECIAL)
SHIFT = 2  # Zipf-Mandelbrot, as for a text of whole words
BLOCK = 2_000  # pairs per piece of work
PIECE = 8_000_000  # bytes per piece of conversion


class ParallelText(DataSet):
    """English sentences and their German translations; the twin draws sub-words by Zipf's law."""

    scalable = True
    texts = (*(f"train.tok.clean.bpe.32000.{language}" for language in LANGUAGES), VOCABULARY)
    pairs: ClassVar[int]
    """Sentence pairs of the real set."""
    sub_words: ClassVar[int]
    """Lines of its vocabulary."""

    @staticmethod
    @abstractmethod
    def length_weights() -> Integers:
        """How frequent source sentences of 1, 2, ... sub-words are."""

    def size(self, scale: float) -> Size:
        pairs = self._blocks(scale) * BLOCK
        return Size(files=8, bytes=pairs * 505 + 300_000, core_seconds=pairs * 35e-6)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        words = invent(random_stream(seed, 0), self.sub_words // 2, shortest=1)
        pieces = [f"{word}@@" for word in words]  # a sub-word followed by another
        spelling = [sub_word for pair in zip(words, pieces, strict=True) for sub_word in pair]
        (place / VOCABULARY).write_text("\n".join(spelling) + "\n", "utf-8")
        blocks = self._blocks(scale)
        write = functools.partial(_write, place, spelling, np.cumsum(self.length_weights()), seed)
        for_each(write, blocks, processes, progress)
        for name in self.texts[:2]:
            join([place / f"{name}.{block}" for block in range(blocks)], place / name)

    def convert(self, place: Path, target: Path, progress: Progress, processes: int) -> None:
        """Write each language's tokens as one array of uint16, and the start of each sentence in it."""
        spelling = (place / VOCABULARY).read_text("utf-8").split()
        numbers = {word.encode(): number for number, word in enumerate(spelling, start=SPECIAL)}
        if len(numbers) + SPECIAL > np.iinfo(np.uint16).max:
            raise InputError(
                f"{place / VOCABULARY} has {len(numbers)} words; up to 65,000 can be read. Use a smaller vocabulary"
            )
        np.save(target / "vocabulary.npy", np.asarray(len(numbers) + SPECIAL))
        work = [(text, piece) for text in self.texts[:2] for piece in cut(place / text, PIECE)]
        for_each(functools.partial(_convert, place, target, numbers, work), len(work), processes, progress)
        for text, language in zip(self.texts, LANGUAGES, strict=False):
            parts = [target / f"{number}" for number, (name, _) in enumerate(work) if name == text]
            np.save(target / f"{language}.npy", _joined(parts, "tokens", np.uint16))
            lengths = _joined(parts, "lengths", np.int64)
            np.save(target / f"{language}-starts.npy", np.concatenate(([0], np.cumsum(lengths))))
        sentences = [len(np.load(target / f"{language}-starts.npy", mmap_mode="r")) - 1 for language in LANGUAGES]
        if sentences[0] != sentences[1]:
            raise InputError(
                f"{place}: {self.texts[0]} has {sentences[0]} lines, {self.texts[1]} has {sentences[1]}. Replace them"
            )

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        files = (f"{language}{part}" for part in ("", "-starts") for language in LANGUAGES)
        arrays = [np.load(place / BINARY / f"{name}.npy", mmap_mode="r") for name in files]
        return SentencePairs(arrays[:2], arrays[2:], int(np.load(place / BINARY / "vocabulary.npy")), transform)

    def _blocks(self, scale: float) -> int:
        return max(1, round(self.pairs * scale / BLOCK))


class SentencePairs(Dataset[tuple[Any, Any]]):
    """Sentences and their translations as numbers of sub-words, each between BEGIN and END."""

    def __init__(self, tokens: list[Any], starts: list[Any], vocabulary: int, transform: Transform) -> None:
        """`tokens` (uint16), `starts` (int64): one array per language; `vocabulary`: how many different numbers."""
        self.tokens = tokens
        self.starts = starts
        self.vocabulary = vocabulary
        self.transform = transform or torch.from_numpy
        self.lengths = torch.from_numpy(np.stack([np.diff(start) for start in starts]) + 2)
        """Numbers in each sentence, int64 [2, pairs]."""

    def __len__(self) -> int:
        return self.lengths.shape[1]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        source, target = (self.transform(self._sentence(side, index)) for side in range(2))
        return source, target

    def up_to(self, longest: int) -> Tensor:
        """Indices of the pairs with at most `longest` numbers on both sides."""
        return (self.lengths <= longest).all(0).nonzero().squeeze(1)

    def _sentence(self, side: int, index: int) -> npt.NDArray[np.int64]:
        begin, end = self.starts[side][index : index + 2]
        return np.concatenate(([BEGIN], self.tokens[side][begin:end], [END]), dtype=np.int64)


def _write(place: Path, spelling: list[str], of_lengths: Integers, seed: int, block: int) -> None:
    """Make one block of pairs. A translation has 0.8 to 1.3 times the sub-words of its source."""
    rng = random_stream(seed, 1, block)
    lengths = 1 + draw(rng, of_lengths, BLOCK)
    frequencies = np.cumsum(zipf(len(spelling), SHIFT))
    words = np.asarray([*spelling, "\n"], object)
    for name in ParallelText.texts[:2]:
        ends = np.cumsum(lengths + 1) - 1
        ranks = draw(rng, frequencies, int(ends[-1]) + 1)
        ranks[ends] = len(spelling)
        text = " ".join(words[ranks]).replace(" \n ", "\n").removesuffix(" \n") + "\n"
        (place / f"{name}.{block}").write_text(text, "utf-8")
        lengths = np.clip(lengths * rng.integers(80, 131, BLOCK) // 100, 1, len(of_lengths))


def _convert(place: Path, target: Path, numbers: dict[bytes, int], work: list[Any], item: int) -> None:
    """Convert one piece of a text to arrays in two files of its own."""
    name, piece = work[item]
    lines = [line.split() for line in read_piece(place / name, piece).removesuffix(b"\n").split(b"\n")]
    tokens = [numbers.get(word, UNKNOWN) for line in lines for word in line]
    np.asarray(tokens, np.uint16).tofile(target / f"{item}.tokens")
    np.asarray([len(line) for line in lines], np.int64).tofile(target / f"{item}.lengths")


def _joined(parts: list[Path], suffix: str, dtype: Any) -> Any:
    """Join the arrays of all parts and remove their files."""
    files = [part.with_suffix(f".{suffix}") for part in parts]
    whole = np.concatenate([np.fromfile(file, dtype) for file in files])
    for file in files:
        file.unlink()
    return whole
