"""Feeding a launch: a loader whose processes begin with the clock, and a count of what they have ready.

If loader processes worked while their tenant waits for ``start``, they would fill their buffers before the clock
starts, and the window would count that work: 5 to 18 % of the rate if a device is 5 to 30 % faster than its loader. So
a gate holds them until ``start``; only the first batch passes it, so that ``ready`` means ready. What piles up later,
while a library tunes itself, is counted: `records.window.worked_off` shows when it has been worked off.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from milabench_ng.bench.channel import shared_numbers
from milabench_ng.model.errors import InputError

APART = 1 << 31
"""Added to the seed for the first batch; the launch's own random numbers begin at the seed."""
LOOK_S = 1.0
"""How often a process waiting at the gate checks that its launch is alive, in seconds."""

MadeT = TypeVar("MadeT")
BatchT = TypeVar("BatchT")
SampleOrder = Callable[[torch.Generator], Iterable[Any]]
"""One epoch: the indices to load, in an order that the generator decides."""


class Gate:
    """Holds loader processes until the start, and counts the samples that each has made."""

    def __init__(self, processes: int) -> None:
        """Processes forked afterwards share it."""
        cells = shared_numbers()
        if processes > len(cells):
            raise InputError(f"--workers: {processes} loader processes were asked for; at most {len(cells)} work")
        self._made = cells[: max(1, processes)]
        self._opened = os.eventfd(0)  # no lock: a process that is killed at the gate blocks no other
        self._owner = os.getpid()

    def open(self) -> None:
        """Let all processes work from now on."""
        os.eventfd_write(self._opened, 1)

    def wait(self) -> None:
        """Return when the gate is open; end the process if its launch has ended."""
        while not select.select([self._opened], [], [], LOOK_S)[0]:  # never read, so it stays open
            if os.getppid() != self._owner:
                os._exit(1)

    def count(self, samples: int) -> None:
        """Add samples made by this process: the launch itself or one of its loader processes."""
        worker = get_worker_info()
        self._made[worker.id if worker else 0] += samples

    @property
    def made(self) -> int:
        """Samples made so far."""
        return sum(self._made)


class Gated(Dataset[Any]):
    """The samples behind a gate, which the first batch passes.

    That batch's random numbers depend on the seed alone: with the same samples, it is the same for every tenant.
    """

    def __init__(self, inner: Dataset[Any], gate: Gate, seed: int) -> None:
        self._inner = inner
        self._gate = gate
        self._seed = seed
        self._first = True
        """Whether the first batch is yet to be made, in the process that makes it."""

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """A batch; torch's loader calls this if it makes batches of samples."""
        many: Callable[[list[Any]], list[Any]] | None = getattr(self._inner, "__getitems__", None)
        with self._passage():
            if many is None:
                return [self._counted(self._inner[index], 1) for index in indices]
            return self._counted(many(indices), len(indices))

    def __getitem__(self, index: Any) -> Any:
        """A sample that is a batch already."""
        with self._passage():
            sample = self._inner[index]
            return self._counted(sample, length(sample))

    def _counted(self, made: MadeT, samples: int) -> MadeT:
        self._gate.count(samples)
        return made

    @contextmanager
    def _passage(self) -> Iterator[None]:
        """Pass the gate, or go first."""
        worker = get_worker_info()
        if self._first and (worker is None or worker.id == 0):
            self._first = False
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._seed + APART)
                yield
            return
        if worker is not None:
            self._gate.wait()
        yield


class Endless(Sampler[Any]):
    """Epoch after epoch in one stream, so that all batches have one size: the remainder of an epoch begins the next.

    A last batch of another size would make libraries choose their kernels again in the middle of a window, and at the
    end of an epoch all loader processes would run dry.
    """

    def __init__(self, epoch: SampleOrder, generator: torch.Generator, seed: int, first: int) -> None:
        """``first``: how many at the start are in an order that depends on ``seed`` alone, not on ``generator``."""
        self._epoch = epoch
        self._generator = generator
        self._seed = seed
        self._first = first

    def __iter__(self) -> Iterator[Any]:
        if self._first:
            yield from islice(self._epoch(torch.Generator().manual_seed(self._seed)), self._first)
        empty = False
        while not empty:
            empty = True
            for each in self._epoch(self._generator):
                empty = False
                yield each


class Feed:
    """The endless batches of a loader, and how much has been made ahead of them."""

    def __init__(self, loader: DataLoader[Any], gate: Gate) -> None:
        self.loader = loader
        self._gate = gate
        self.taken = 0
        """Samples in the batches that the launch has taken."""

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            self.taken += self.loader.batch_size or length(batch)
            yield batch

    def open(self) -> None:
        """Open the gate: the launch has started."""
        self._gate.open()

    @property
    def ahead(self) -> int:
        """Samples that are made and not yet taken, including those of unfinished batches."""
        return self._gate.made - self.taken


def shuffled(count: int) -> SampleOrder:
    """Permutations of the first ``count`` numbers."""
    return lambda generator: torch.randperm(count, generator=generator).tolist()


def in_order(count: int) -> SampleOrder:
    """The first ``count`` numbers in order."""
    return lambda _: range(count)


def length(batch: Any) -> int:
    """Samples of a batch: the length of its first tensor."""
    first = batch
    while isinstance(first, list | tuple | dict):
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    return len(first)


def backlog_of(feeds: Sequence[Feed], count: int) -> float | None:
    """Items that loader processes have made and a launch of ``count`` items has not yet requested; None without any."""
    if not feeds:
        return None
    samples = sum(feed.taken for feed in feeds)
    return sum(feed.ahead for feed in feeds) * count / samples if samples else 0.0


def repeat(batches: Iterable[BatchT]) -> Iterator[BatchT]:
    """Epoch after epoch. Raises InputError if an epoch has no batch."""
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise InputError(
                "the dataset has no batch: is the batch size larger than the dataset? Use a smaller --batch-size or "
                "a larger --data-scale"
            )
