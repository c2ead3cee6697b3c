"""A budget of bytes per second for the readers of a dataset, shared by all loader processes of a tenant.

For data on storage whose I/O the kernel does not limit (network and memory file systems, overlays, nodes without a
usable controller). The kernel says what a read cost (/proc/thread-self/io, proc(5)), whatever opens the files, so data
sets need not know. Unlike a limit on a disk, the budget includes reads from the page cache.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import SynchronizedArray

BURST_S = 0.1
"""Budget unused in this many seconds may be used later; the kernel's limits do the same."""
_COUNTERS = Path("/proc/thread-self/io")
_DUE, _BYTES, _BEGAN = range(3)
T = TypeVar("T")


class Spent(msgspec.Struct, frozen=True):
    """Bytes that were read, and the seconds from the first read until the budget was balanced again."""

    bytes: int
    seconds: float


class Budget:
    """A token bucket in shared memory, as a virtual clock (GCRA, ITU-T I.371): when the bytes so far are paid for."""

    def __init__(self, bytes_per_s: int) -> None:
        """Processes forked afterwards share it."""
        self._bytes_per_s = bytes_per_s
        shared = multiprocessing.get_context("fork").Array("d", [0.0, 0.0, 0.0])
        self._state = cast("SynchronizedArray[float]", shared)

    def reading(self, action: Callable[[], T]) -> T:
        """Return the result of ``action`` after the time that the bytes it read take."""
        before = _counters()
        value = action()
        # Bytes through read(2) or, if that is more, from the storage (mapped files). Both as differences: a loader
        # process may have read more from the storage before, its own code for example.
        self.take(max(now - then for then, now in zip(before, _counters(), strict=True)))
        return value

    def take(self, size: int) -> None:
        """Pay for ``size`` bytes: sleep until they are due."""
        now = time.monotonic()
        with self._state.get_lock():
            state = self._state
            if state[_BYTES] == 0:
                state[_BEGAN] = state[_DUE] = now
            state[_DUE] = max(state[_DUE], now - BURST_S) + size / self._bytes_per_s
            state[_BYTES] += size
            due = state[_DUE]
        time.sleep(max(0.0, due - now))

    def spent(self) -> Spent:
        """What all processes have spent so far."""
        with self._state.get_lock():
            due, size, began = (self._state[field] for field in (_DUE, _BYTES, _BEGAN))
        return Spent(int(size), max(time.monotonic(), due) - began if size else 0.0)


class Budgeted(Dataset[Any]):
    """A dataset whose samples are read within a budget."""

    def __init__(self, inner: Dataset[Any], budget: Budget) -> None:
        self._inner = inner
        self._budget = budget

    def __getitem__(self, index: Any) -> Any:
        return self._budget.reading(lambda: self._inner[index])

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]


def _counters() -> tuple[int, int]:
    """Bytes that this thread has read so far, through read(2) and from the storage."""
    lines = dict(line.split(": ") for line in _COUNTERS.read_text().splitlines())
    return int(lines["rchar"]), int(lines["read_bytes"])
