"""Clicks on advertisements, as recommenders are trained on: a label, counts and the ids of categories."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.words import join

COUNTS, FEATURES, HOT = 13, 24, 8
"""Of a click: counts, features with categories, and categories of a feature."""
COLUMNS = 1 + COUNTS + FEATURES * HOT
"""Of a row: label, counts, ids; 824 bytes."""
BATCH, BATCHES = 8192, 64
FILE = "clicks.int32"
TYPE = np.dtype("<i4")
CLICKED = 0.25
"""Share of the impressions that were clicked on, about that of Criteo's data."""


class Clicks(DataSet):
    """Clicks with 13 counts and 24 features of 8 categories, as in Criteo's data. Twin: uniform ids, log-normal counts.

    Ids are below 2^31: who looks them up takes them modulo the rows of a table. `data_scale` is the share of the 64
    batches of 8192 clicks.
    """

    name = "clicks"
    folder = "clicks"
    version = 1
    scalable = True

    def size(self, scale: float) -> Size:
        batches = self.scaled({"train": BATCHES}, scale)["train"]
        return Size(files=1, bytes=batches * BATCH * COLUMNS * TYPE.itemsize, core_seconds=batches * 0.03)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        batches = self.scaled({"train": BATCHES}, scale)["train"]
        for_each(functools.partial(_write, place, seed), batches, processes, progress)
        join([place / f"{FILE}.{batch}" for batch in range(batches)], place / FILE)

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        return ClickRows(place / FILE, transform)


class ClickRows(Dataset[Any]):
    """Rows of int32 numbers: label, counts, and the ids of all features, feature by feature."""

    def __init__(self, file: Path, transform: Transform) -> None:
        self.rows = np.memmap(file, TYPE, "r").reshape(-1, COLUMNS)
        self._transform = transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        row = np.array(self.rows[index])
        return self._transform(row) if self._transform else row


def _write(place: Path, seed: int, batch: int) -> None:
    rng = random_stream(seed, batch)
    rows = np.empty((BATCH, COLUMNS), TYPE)
    rows[:, 0] = rng.random(BATCH) < CLICKED
    rows[:, 1 : 1 + COUNTS] = rng.lognormal(2.0, 1.5, (BATCH, COUNTS)).clip(max=1e6)
    rows[:, 1 + COUNTS :] = rng.integers(1 << 31, size=(BATCH, FEATURES * HOT))
    rows.tofile(place / f"{FILE}.{batch}")
