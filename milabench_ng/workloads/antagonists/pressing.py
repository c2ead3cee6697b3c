"""How hard an antagonist presses, and with how many threads."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Self

import torch
from msgspec import Meta

Busy = Annotated[float, Meta(gt=0, le=1)]
"""The share of the time in which an antagonist works."""


def paced(busy: float) -> Iterator[None]:
    """Endless steps; between two of them, a pause, so that steps take the share ``busy`` of the time.

    A step must end when its work does: on a GPU, it waits for it.
    """
    yield  # measured with the wait for the common start
    while True:
        began = time.monotonic()
        yield
        if busy < 1:
            time.sleep((time.monotonic() - began) * (1 / busy - 1))


def finish(device: torch.device) -> None:
    """Wait until ``device`` has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Crew:
    """Threads that do the same work side by side, a round at a time: for what Python does not hold up, system calls."""

    def __init__(self, size: int, work: Callable[[int], object]) -> None:
        """``work``: takes the thread's number, from 0."""
        self.size = size
        self._work = work
        self._pool = ThreadPoolExecutor(size)

    def round(self) -> None:
        """All threads once; raises what one of them raised."""
        list(self._pool.map(self._work, range(self.size)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
