"""Image features: what a frozen network says about images, as vectors in .npy files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Dataset

from milabench_ng.datasets.base import DataSet, Progress, Size, random_stream
from milabench_ng.datasets.parallel import for_each

CLASSES = 10
WIDTH = 512
BLOCK = 1_000  # vectors in a file
BLOCKS = 100


class Features(DataSet):
    """Vectors of 512 numbers with a label each. Twin: 100,000 normal vectors around one centre a class."""

    name = "features"
    folder = "acme-features"
    version = 1
    scalable = True

    def size(self, scale: float) -> Size:
        files = 2 * _blocks(scale)
        return Size(files=files, bytes=_blocks(scale) * BLOCK * (4 * WIDTH + 8), core_seconds=0.02 * files)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        for_each(functools.partial(_write, place, seed), _blocks(scale), processes, progress)

    def open(
        self, place: Path, *, split: str = "train", transform: Callable[[Any], Any] | None = None
    ) -> Dataset[tuple[Any, Any]]:
        return ConcatDataset([Block(path, transform) for path in sorted(place.glob(f"{split}-*-vectors.npy"))])

    def looks_real(self, place: Path) -> bool:
        return (place / "train-000-vectors.npy").is_file()


class Block(Dataset[tuple[Any, Any]]):
    """One file of vectors, mapped into memory, and its labels."""

    def __init__(self, vectors: Path, transform: Callable[[Any], Any] | None) -> None:
        self.vectors = np.load(vectors, mmap_mode="r")
        self.labels = np.load(vectors.with_name(vectors.name.replace("vectors", "labels")))
        self.transform = transform or np.array  # a copy: torch takes no read-only memory

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transform(self.vectors[index]), self.labels[index]


def _blocks(scale: float) -> int:
    return max(1, round(BLOCKS * scale))


def _write(place: Path, seed: int, block: int) -> None:
    """The same bytes on every machine, whichever process makes this block."""
    centres = random_stream(seed, 0).standard_normal((CLASSES, WIDTH), np.float32)
    rng = random_stream(seed, 1, block)
    labels = rng.integers(0, CLASSES, BLOCK)
    np.save(place / f"train-{block:03d}-vectors.npy", centres[labels] + rng.standard_normal((BLOCK, WIDTH), np.float32))
    np.save(place / f"train-{block:03d}-labels.npy", labels)
