"""Make many items with several processes, none of which outlives its parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from milabench_ng.datasets.base import Progress
from milabench_ng.model.errors import InputError

ResultT = TypeVar("ResultT")

PR_SET_PDEATHSIG = 1  # prctl(2)


def for_each(make: Callable[[int], None], items: int, processes: int, progress: Progress) -> None:
    """Call `make(i)` once for each i below `items`, spread over `processes`, and report progress from this thread.

    `make` must be picklable and must not depend on the order of the calls. Processes are forked: they inherit what is
    imported and computed (torch would take seconds to import), so the caller should have one thread. Raises InputError
    if the kernel killed one of them; an exception of `make` passes through.
    """
    progress(0, items)
    if processes <= 1:
        for item in range(items):
            make(item)
            progress(item + 1, items)
        return
    with _pool(min(processes, items)) as pool:
        chunk = max(1, min(32, items // (8 * processes)))
        for done, _ in enumerate(pool.map(make, range(items), chunksize=chunk), start=1):
            progress(done, items)


def at_once(measure: Callable[[], ResultT], processes: int) -> list[ResultT]:
    """The results of `measure()` in `processes` processes at the same time. For forking see `for_each`."""
    with _pool(processes) as pool:
        return [each.result() for each in [pool.submit(measure) for _ in range(processes)]]


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("fork"), initializer=_bind_to, initargs=(os.getpid(),)
    )
    try:
        yield pool
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {processes} generating processes was killed, probably because memory ran out. Use fewer processes"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _bind_to(parent: int) -> None:
    """Die with the parent, however it ends, and leave the terminal's Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)
