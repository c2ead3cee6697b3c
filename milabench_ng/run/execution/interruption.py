"""Ends a run early: cleanly on the first signal, at once on a second."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from milabench_ng.model import signals
from milabench_ng.model.errors import MnbError

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Ctrl-C, a closed terminal, and what batch systems send before a job's time is up (sbatch(1), ``--signal``)."""
SAME_S = 1.0
"""Signals within this time count as one: a batch system signals a job's steps and its shell, which passes it on."""


class Interrupted(MnbError):  # noqa: N818  (what happened, and no fault)
    """A signal ended the run in the middle of a step."""

    def __init__(self, number: int) -> None:
        super().__init__(signals.interrupted_by(number))
        self.exit_code = signals.exit_code(number)


class Interruption(asyncio.Event):
    """Set when the run must stop."""

    by: signal.Signals | None = None
    """The signal."""
    at_s: float = float("inf")
    """Time of the signal (monotonic)."""

    def strike(self, number: signal.Signals) -> None:
        """Note the signal that stops the run."""
        self.by, self.at_s = number, time.monotonic()
        self.set()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, which a signal cancels. Raises `Interrupted` then, or if there was one before."""
        working = asyncio.create_task(work)
        striking = asyncio.create_task(self.wait())
        try:
            await asyncio.wait({working, striking}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise self.error()
        finally:
            for task in (working, striking):
                task.cancel()
            await asyncio.gather(working, striking, return_exceptions=True)

    def error(self) -> Interrupted:
        """What to raise where nothing is worth keeping."""
        assert self.by is not None
        return Interrupted(self.by)


async def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which leaves nothing that is worth keeping. Raises `Interrupted` at a signal."""
    async with interruptions(lambda _: None) as interrupted:
        return await interrupted.unless(work)


@asynccontextmanager
async def interruptions(tell: Callable[[str], None]) -> AsyncIterator[Interruption]:
    """Set by the first of `SIGNALS`; a second SIGINT or SIGTERM cancels the block, which raises `Interrupted`.

    A third ends the process. Signals that were ignored when the process began stay ignored (nohup(1)).
    """
    loop, block = asyncio.get_running_loop(), asyncio.current_task()
    assert block is not None
    interrupted = Interruption()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    again = False

    def interrupt(number: signal.Signals) -> None:
        nonlocal again
        if not interrupted.is_set():
            interrupted.strike(number)  # first: telling may fail where the terminal is gone
            with contextlib.suppress(OSError):
                tell(
                    f"{signals.interrupted_by(number)}: stopping; a second signal, {SAME_S:g} s later, ends mnb at once"
                )
        elif number in signals.ENDING and time.monotonic() - interrupted.at_s > SAME_S:
            again = True
            restore()
            block.cancel()

    def restore() -> None:
        for number in heeded:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if again else before[number])

    for number in heeded:
        loop.add_signal_handler(number, interrupt, number)
    try:
        yield interrupted
    except asyncio.CancelledError:
        if not again:
            raise
        block.uncancel()
        raise interrupted.error() from None
    finally:
        restore()
