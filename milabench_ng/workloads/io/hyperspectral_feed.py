"""How images come from the storage to the device: what the five strategies of the data-loading study differ in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.bench import Bench, DataBy
from milabench_ng.bench.feeding import SampleOrder
from milabench_ng.datasets.spectra.hyperspectral import HsiRaw, HsiRaw16, HsiRaw32, Images
from milabench_ng.datasets.spectra.scenes import INVALID
from milabench_ng.workloads.io.augmentation import changed, draw_change
from milabench_ng.workloads.io.ring_buffer import RingBuffer

Strategy = Literal["original", "blosc", "fp16", "gpu_aug", "ring_buffer"]
"""Each changes one thing more: compressed files, half the bytes, augmentation on the GPU, a ring of batches."""
STORED = DataBy(
    option="strategy",
    sets={
        "original": HsiRaw.name,
        "blosc": HsiRaw32.name,
        **dict.fromkeys(("fp16", "gpu_aug", "ring_buffer"), HsiRaw16.name),
    },
)
MOST_THREADS = 8
"""Of a process that decompresses: python-blosc, which the study used, takes as many as there are cores, at most 8."""
Part = tuple[Tensor, Tensor, Tensor]
"""Features [H, W, C] as stored, labels int64 [H, W], 0 where a pixel is not valid, and valid pixels bool [H, W]."""


class Scenes(Dataset[Part]):
    """Images with what a training needs of them; augmented here if ``augment``."""

    def __init__(self, images: Images, augment: bool) -> None:
        self.images = images
        self.augment = augment

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Part:
        values, classes = self.images[number]
        part = torch.from_numpy(values), *_masks(classes)
        return changed(draw_change(), *part) if self.augment else part


class RingWriter(Dataset[tuple[Tensor, int]]):
    """Whole batches, written into a ring: an index is that of its images, a sample their numbers and the slot."""

    def __init__(self, images: Images, ring: RingBuffer) -> None:
        self.images = images
        self.ring = ring

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, numbers: Sequence[int]) -> tuple[Tensor, int]:
        def write(slot: Sequence[Tensor]) -> None:
            for number, features, *masks in zip(numbers, *slot, strict=True):
                classes = self.images.read(number, features.numpy())
                for mask, found in zip(masks, _masks(classes), strict=True):
                    mask.copy_(found)

        return torch.tensor(numbers), self.ring.fill(write)


def batches_of(size: int, images: int) -> SampleOrder:
    """Batches of one size: as many epochs as a batch has images are cut into them, so that none is left over."""

    def epochs(generator: torch.Generator) -> Iterator[list[int]]:
        numbers: Iterator[int] = itertools.chain.from_iterable(
            torch.randperm(images, generator=generator).tolist() for _ in range(size)
        )
        for _ in range(images):
            yield list(itertools.islice(numbers, size))

    return epochs


@contextmanager
def feed(
    bench: Bench, strategy: Strategy, batch_size: int, keep_cached: bool, threads: int = 0
) -> Iterator[Iterable[Any]]:
    """Batches of a strategy for ``bench.measure``; `ready` makes of them what the network is trained on.

    ``threads``: that decompress an image; 0 for what `threads_each` says.
    """
    images: Images = bench.data()
    images.keep_cached = keep_cached
    in_loader = bench.processes(bench.max_workers) > 0
    images.threads = (threads or threads_each(bench)) if in_loader else 1
    if strategy != "original":
        bench.took("decompression", f"{images.threads} threads a process")
    if strategy != "ring_buffer":
        yield bench.loader(batch_size, samples=Scenes(images, augment=not augments_on_device(strategy)))
        return
    sides = batch_size, *images.shape[:2]
    stored = torch.from_numpy(np.empty(0, images.dtype)).dtype
    tensors = [((*sides, images.shape[2]), stored), (sides, torch.int64), (sides, torch.bool)]
    ring = RingBuffer(tensors, bench.processes(bench.max_workers), bench.device)
    try:
        order = batches_of(batch_size, len(images))
        filled = bench.loader(None, samples=RingWriter(images, ring), order=order, pin_memory=False)
        yield ring.batches((slot for _, slot in filled), bench.to_device)
    finally:
        ring.close()


def ready(batch: Sequence[Tensor], strategy: Strategy, weights: torch.dtype) -> list[Tensor]:
    """A batch on the device as the network takes it: features [N, C, H, W], a view in channels last; labels; valid.

    ``weights``: their type, which features get unless autocast chooses it.
    """
    kind = batch[0].device.type
    if augments_on_device(strategy):
        with torch.no_grad(), torch.autocast(kind, enabled=False):
            images = [changed(draw_change(), *image) for image in zip(*batch, strict=True)]
            batch = [torch.stack(part) for part in zip(*images, strict=True)]
    features, labels, valid = batch
    if not torch.is_autocast_enabled(kind):
        features = features.to(weights)
    return [features.contiguous().permute(0, 3, 1, 2), labels, valid]


def threads_each(bench: Bench) -> int:
    """The threads of each loader process: its part of the tenant's CPUs; 1 where the launch itself decompresses."""
    processes = bench.processes(bench.max_workers)
    return bench.processes(processes * MOST_THREADS) // processes if processes else 1


def augments_on_device(strategy: Strategy) -> bool:
    """Whether images reach the device as they were stored."""
    names = get_args(Strategy)
    return names.index(strategy) >= names.index("gpu_aug")


def _masks(classes: np.ndarray[Any, np.dtype[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Labels and valid pixels."""
    valid = classes != INVALID
    return torch.from_numpy(np.where(valid, classes, 0).astype(np.int64)), torch.from_numpy(valid)
