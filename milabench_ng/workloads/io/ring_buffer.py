"""A ring of page-locked batches that loader processes fill in place.

Of PyTorch's loader, batches of this size take a copy into the batch, one into shared memory and one into page-locked
memory. Here a process writes each batch where the device copies it from, and hands over the number of its slot.
"""

from __future__ import annotations

import math
import mmap
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from milabench_ng.bench.bench import PREFETCH
from milabench_ng.bench.feeding import LOOK_S
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import format_bytes

RAM_VARIABLE = "MNB_RAM_BYTES"
"""The tenant's share of RAM, as its environment tells it."""


class RingBuffer:
    """Slots of shared memory, each with room for one batch; each process has some of its own and fills them in turn.

    A slot is free again once the copy of its batch to the device has been waited for: by an event of its own, not by
    the whole device. A process that finds its next slot taken waits for it, whatever the order of the requests.
    """

    def __init__(self, batch: Sequence[tuple[tuple[int, ...], torch.dtype]], processes: int, device: torch.device):
        """``batch``: shape and type of each of its tensors. Processes forked afterwards share the ring.

        Raises InputError if it does not fit into the tenant's RAM, or cannot be page-locked for a GPU.
        """
        self._owner = os.getpid()
        # Ready, being copied and, with a single process, in the launch's hands: none waits in the usual order.
        self.depth = PREFETCH + (2 if processes <= 1 else 1)
        """Slots of each process."""
        slots = self.depth * max(1, processes)
        self.bytes = slots * sum(math.prod(shape) * dtype.itemsize for shape, dtype in batch)
        _require_ram(self.bytes, slots)
        self.tensors = tuple(_shared((slots, *shape), dtype) for shape, dtype in batch)
        self._free = [os.eventfd(self.depth, os.EFD_SEMAPHORE | os.EFD_CLOEXEC) for _ in range(max(1, processes))]
        self._filled = 0
        """Slots that this process has filled."""
        self._cuda = device.type == "cuda"
        self._copied = [torch.cuda.Event() for _ in range(slots)] if self._cuda else []  # type: ignore[no-untyped-call]
        if self._cuda:
            self._lock_pages()

    def fill(self, write: Callable[[Sequence[Tensor]], None]) -> int:
        """Have ``write`` fill this process's next slot, once it is free; return its number."""
        worker = get_worker_info()
        number = worker.id if worker else 0
        free = self._free[number]
        while not select.select([free], [], [], LOOK_S)[0]:
            if worker and os.getppid() != self._owner:
                os._exit(1)  # its launch has ended
        os.eventfd_read(free)
        slot = number * self.depth + self._filled % self.depth
        self._filled += 1
        write([tensor[slot] for tensor in self.tensors])
        return slot

    def batches(self, slots: Iterable[int], to_device: Callable[[Any], Any]) -> Iterator[Any]:
        """The batches of filled ``slots``, moved to the device.

        ``slots`` is asked for the next while at most one batch, the last, may still be on its way.
        """
        taken: deque[int] = deque()
        for slot in slots:
            moved = to_device([tensor[slot] for tensor in self.tensors])
            if self._cuda:
                self._copied[slot].record()
            taken.append(slot)
            yield moved
            while len(taken) > 1:
                self._release(taken.popleft())

    def close(self) -> None:
        """Give the pages back, after all copies."""
        if self._cuda:
            torch.cuda.synchronize()
            for tensor in self.tensors:
                _runtime().cudaHostUnregister(tensor.data_ptr())

    def _release(self, slot: int) -> None:
        if self._cuda:
            self._copied[slot].synchronize()
        os.eventfd_write(self._free[slot // self.depth], 1)

    def _lock_pages(self) -> None:
        """So that the device copies by itself (CUDA Runtime API, cudaHostRegister)."""
        for tensor in self.tensors:
            status = _runtime().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)
            if status != _runtime().cudaError.success or not tensor.is_pinned():
                raise InputError(
                    f"--strategy ring_buffer: the driver did not page-lock {format_bytes(tensor.nbytes)} of shared "
                    f"memory (cudaHostRegister: {status}). Raise the limit on locked memory (ulimit -l), or use "
                    "another strategy"
                )


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _shared(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in memory that this process shares with its forks; without a file, so /dev/shm may be of any size."""
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _require_ram(size: int, slots: int) -> None:
    share = int(os.environ.get(RAM_VARIABLE, 0))
    if share and size > share:
        raise InputError(
            f"--strategy ring_buffer: {slots} batches of {format_bytes(size // slots)} are {format_bytes(size)} of "
            f"page-locked memory, and the tenant's share of RAM is {format_bytes(share)}: take a smaller --batch-size "
            "or fewer --workers"
        )
