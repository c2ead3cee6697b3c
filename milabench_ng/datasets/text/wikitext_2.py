"""WikiText-2: `wiki.{train,valid,test}.tokens`, words separated by blanks; the end of a line is the word <eos>."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.datasets.base import BINARY, DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.words import Integers, apportion, invent, zipf

TYPES = 33_278  # different words of the three splits, with <eos> and <unk>
TOKENS = {"train": 2_088_628, "valid": 217_646, "test": 245_569}  # with <eos>
LINES = {"train": 36_718, "valid": 3_760, "test": 4_358}
SHIFT = 2  # Zipf-Mandelbrot: the first word is 5 % of the text, the rarest occurs six times in the training split
UNKNOWN_RANK = 3  # rank of <unk>, which is 2 % of the text


class WikiText2(DataSet):
    """WikiText-2 (Merity et al., arXiv:1609.07843). Twin: as many tokens, lines and different words, Zipf's law."""

    name = "wikitext-2"
    folder = "wikitext-2"
    version = 1
    scalable = False
    texts = tuple(f"wiki.{split}.tokens" for split in TOKENS)

    def size(self, scale: float) -> Size:  # noqa: ARG002 - it has one size
        return Size(files=6, bytes=24_000_000, core_seconds=2.0)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:  # noqa: ARG002
        words = invent(random_stream(seed, 0), TYPES - 2, shortest=1)
        spelling = np.asarray(["\n", *words[:UNKNOWN_RANK], "<unk>", *words[UNKNOWN_RANK:]], object)
        for number, split in enumerate(TOKENS):
            progress(number, len(TOKENS))
            tokens = random_stream(seed, 1, number).permutation(np.repeat(np.arange(TYPES), _counts(split)))
            tokens[tokens.argmin()], tokens[-1] = tokens[-1], 0  # the last line ends too
            (place / f"wiki.{split}.tokens").write_text(" " + " ".join(spelling[tokens]), "utf-8", newline="\n")
        progress(len(TOKENS), len(TOKENS))

    def convert(self, place: Path, target: Path, progress: Progress, processes: int) -> None:  # noqa: ARG002 - 13 MB
        """Number the words in the order in which they first occur in train, valid, test."""
        numbers: dict[str, int] = {}
        for done, split in enumerate(TOKENS, start=1):
            text = (place / f"wiki.{split}.tokens").read_text("utf-8")
            tokens = [
                numbers.setdefault(word, len(numbers))
                for line in text.removesuffix("\n").split("\n")
                for word in (*line.split(), "<eos>")
            ]
            np.save(target / f"{split}.npy", np.asarray(tokens, np.int32))
            progress(done, len(TOKENS))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, TOKENS)
        arrays = {name: np.load(place / BINARY / f"{name}.npy", mmap_mode="r") for name in TOKENS}
        return Words(arrays[split], 1 + max(int(array.max()) for array in arrays.values()), transform)


class Words(Dataset[tuple[Any, Any]]):
    """A text: sample i is token i and the token after it."""

    def __init__(self, tokens: Any, vocabulary: int, transform: Transform) -> None:
        """`tokens`: word numbers, int32; `vocabulary`: how many different words all splits have."""
        self.tokens = tokens
        self.vocabulary = vocabulary
        self.transform = transform or int

    def __len__(self) -> int:
        return len(self.tokens) - 1

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transform(self.tokens[index]), self.transform(self.tokens[index + 1])

    def columns(self, count: int) -> Tensor:
        """The text in `count` columns of equal length, int64 [length, count]; the remainder is dropped."""
        length = len(self.tokens) // count
        return torch.from_numpy(self.tokens[: length * count].reshape(count, length).T.astype(np.int64))


def _counts(split: str) -> Integers:
    """How often each word occurs in a split; word 0 is <eos>."""
    counts = apportion(zipf(TYPES - 1, SHIFT), TOKENS[split] - LINES[split])
    return np.concatenate(([LINES[split]], counts))
