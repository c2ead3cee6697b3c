"""SQuAD v1.1 as BERT reads it: questions with a text each, in numbers of sub-words, and where the answer is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.words import draw

FEATURES = 88_641
LONGEST = 384
"""Tokens of a sequence; longer texts are cut into several."""
PAD, BEGIN, SEPARATOR, FIRST_WORD = 0, 101, 102, 1_000
VOCABULARY = 30_522
QUESTION = (6, 21)
"""Sub-words of a question: at least, below."""
SCALE = 47.0
"""Texts have n sub-words with weight n^2 exp(-n / this), at most `TEXT`."""
TEXT = LONGEST - QUESTION[1] - 2
ANSWER = 11
"""An answer has fewer sub-words than this."""
BLOCK = 5_000
FILES = ("tokens", "starts", "questions", "spans")


class Squad(DataSet):
    """SQuAD v1.1 (Rajpurkar et al., arXiv:1606.05250). Twin: 88,641 sequences of 150 tokens on average, at most 384.

    Words and answers are drawn uniformly. The real set is not read: that would need BERT's vocabulary.
    """

    name = "squad"
    folder = "squad"
    version = 1
    scalable = True

    def size(self, scale: float) -> Size:
        features = _features(scale)
        return Size(files=len(FILES), bytes=features * 325, core_seconds=features * 1e-5)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:  # noqa: ARG002 - 29 MB
        features = _features(scale)
        firsts = range(0, features, BLOCK)
        made = []
        for done, first in enumerate(firsts):
            progress(done, len(firsts))
            made.append(_make(random_stream(seed, done), min(BLOCK, features - first)))
        for name, parts in zip(FILES, zip(*made, strict=True), strict=True):
            whole = np.concatenate(parts)
            np.save(place / f"{name}.npy", np.cumsum(np.append(0, whole)) if name == "starts" else whole)
        progress(len(firsts), len(firsts))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        tokens, starts, questions, spans = (np.load(place / f"{name}.npy", mmap_mode="r") for name in FILES)
        return Questions(tokens, starts, questions, spans, transform)


class Questions(Dataset[tuple[Any, Any]]):
    """Sequences of tokens, [CLS] question [SEP] text [SEP], and the first and last token of the answer."""

    def __init__(self, tokens: Any, starts: Any, questions: Any, spans: Any, transform: Transform) -> None:
        """``tokens``: all sequences (uint16), each from its place in ``starts`` on. ``questions``: sub-words of each
        question. ``spans``: [sequences, 2]."""
        self.tokens = tokens
        self.starts = starts
        self.questions = questions
        self.spans = spans
        self.transform = transform or torch.from_numpy

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        begin, end = self.starts[index : index + 2]
        return self.transform(self.tokens[begin:end].astype(np.int64)), self.transform(
            self.spans[index].astype(np.int64)
        )

    def padded(self, length: int) -> PaddedQuestions:
        """The sequences cut or padded to ``length`` tokens."""
        return PaddedQuestions(self, length)


class PaddedQuestions(Dataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """Sequences of one length: tokens [L], 1 for what is no padding [L], 1 for the text [L], and the span [2].

    An answer that was cut off becomes the first token, as for texts without one. All are int64.
    """

    def __init__(self, questions: Questions, length: int) -> None:
        self.questions = questions
        self.length = length

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found, span = self.questions[index]
        tokens, real, parts = torch.zeros(3, self.length, dtype=torch.int64)
        end = min(len(found), self.length)
        tokens[:end] = found[:end]
        real[:end] = 1
        parts[int(self.questions.questions[index]) + 2 : end] = 1
        return tokens, real, parts, span * (span[1] < self.length)


def _features(scale: float) -> int:
    return max(1, round(FEATURES * scale))


def _make(rng: np.random.Generator, count: int) -> tuple[Any, Any, Any, Any]:
    """Tokens, lengths of sequences, lengths of questions and spans of ``count`` sequences."""
    weights = [round(length**2 * 1e6 * math.exp(-length / SCALE)) for length in range(1, TEXT + 1)]
    questions = rng.integers(*QUESTION, count)
    texts = 1 + draw(rng, np.cumsum(np.asarray(weights)), count)
    lengths = questions + texts + 3
    ends = np.cumsum(lengths)
    tokens = rng.integers(FIRST_WORD, VOCABULARY, int(ends[-1]), np.uint16)
    tokens[ends - lengths] = BEGIN
    tokens[ends - lengths + questions + 1] = SEPARATOR
    tokens[ends - 1] = SEPARATOR
    first = rng.integers(0, texts)
    last = np.minimum(first + rng.integers(0, ANSWER - 1, count), texts - 1)
    spans = np.stack((first, last), axis=1) + (questions + 2)[:, None]
    return tokens, lengths, questions.astype(np.int16), spans.astype(np.int16)
