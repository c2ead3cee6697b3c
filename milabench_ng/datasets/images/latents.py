"""Latents of pictures: what an autoencoder makes of ImageNet at 512 x 512, for diffusion in latent space."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.images.imagenet import CLASSES
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.words import join

SHAPE = (4, 64, 64)
"""Channels, rows and columns of a latent: an eighth of the picture's sides (Rombach et al., arXiv:2112.10752)."""
COUNT = 8192
BLOCK = 256
"""Latents of a piece of work."""
LATENTS, LABELS = "latents.fp16", "labels.int64"
TYPE = np.dtype("<f2")


class Latents(DataSet):
    """Latents of ImageNet and their classes. Twin: normal deviates in fp16, as scaled latents have unit variance."""

    name = "latents"
    folder = "latents"
    version = 1
    scalable = True

    def size(self, scale: float) -> Size:
        count = self.scaled({"train": COUNT}, scale)["train"]
        return Size(files=2, bytes=count * (math.prod(SHAPE) * TYPE.itemsize + 8), core_seconds=count * 4e-4)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        count = self.scaled({"train": COUNT}, scale)["train"]
        blocks = -(-count // BLOCK)
        for_each(functools.partial(_write, place, count, seed), blocks, processes, progress)
        join([place / f"{LATENTS}.{block}" for block in range(blocks)], place / LATENTS)
        random_stream(seed, 1).integers(CLASSES, size=count).astype("<i8").tofile(place / LABELS)

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        return LatentSamples(place, transform)


class LatentSamples(Dataset[tuple[Any, Any]]):
    """Latents, fp16 [4, 64, 64], and the numbers of their classes."""

    def __init__(self, place: Path, transform: Transform) -> None:
        self._latents = np.memmap(place / LATENTS, TYPE, "r").reshape(-1, *SHAPE)
        self._labels = np.fromfile(place / LABELS, "<i8")
        self._transform = transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        latent = torch.from_numpy(np.array(self._latents[index]))
        return self._transform(latent) if self._transform else latent, int(self._labels[index])


def _write(place: Path, count: int, seed: int, block: int) -> None:
    size = min(BLOCK, count - block * BLOCK)
    random_stream(seed, 0, block).standard_normal((size, *SHAPE), np.float32).astype(TYPE).tofile(
        place / f"{LATENTS}.{block}"
    )
