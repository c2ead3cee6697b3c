"""Waits that end: for drivers and disks in a thread of its own, and for processes that have been told to end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from milabench_ng.fence.killing import signal_child

T = TypeVar("T")

DEATH_S = 5.0
"""How long the end of a killed process is waited for; one that takes longer hangs in the kernel and is left there."""


async def in_thread(work: Callable[[], T]) -> T:
    """``work()``, in a thread; the event loop goes on, and so does the run if the caller stops waiting.

    A daemon thread: one that hangs in a driver does not keep this process from ending.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def carry_out() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            outcome.set_exception(error)

    threading.Thread(target=carry_out, name="mnb: waiting", daemon=True).start()
    return await asyncio.wrap_future(outcome)


async def end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Wait for a process that has been told to end; kill it if it is still there after ``patience_s``."""
    if not await _ended(process, patience_s):
        signal_child(process, signal.SIGKILL)
        await _ended(process, DEATH_S)


async def _ended(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    end_s = time.monotonic() + patience_s
    while process.poll() is None:
        if time.monotonic() > end_s:
            return False
        await asyncio.sleep(0.01)
    return True


async def heed_callbacks() -> None:
    """Raise what a callback of the event loop raises, such as one that reads a pipe; nobody else waits for it."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()

    def heed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context and not failed.done():
            failed.set_exception(context["exception"])
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(heed)
    try:
        await failed
    finally:
        loop.set_exception_handler(None)


def told(error: BaseException) -> str:
    """What went wrong in a group of tasks, in one line: the exceptions of all that failed."""
    return "; ".join(dict.fromkeys(f"{type(one).__name__}: {one}" for one in _leaves(error)))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error
