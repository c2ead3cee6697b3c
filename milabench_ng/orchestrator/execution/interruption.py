"""What ends a run early: the first signal ends it cleanly, a second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Ctrl-C, the end of a terminal, and what batch systems send before a job's time is over (sbatch(1), ``--signal``)."""
ENDING = (signal.SIGINT, signal.SIGTERM)
SAME_S = 1.0
"""Signals nearer to each other are one: a batch system sends one to a job's steps and to its shell, which passes it."""


class Interruption(asyncio.Event):
    """Set when the run is told to stop."""

    by: str = ""
    """The signal's name."""
    at_s: float = float("inf")
    """When (monotonic)."""

    def strike(self, number: signal.Signals) -> None:
        """The run was told to stop."""
        self.by, self.at_s = number.name, time.monotonic()
        self.set()


@contextmanager
def interruptions(tell: Callable[[str], None]) -> Iterator[Interruption]:
    """Set by the first of `SIGNALS`, which ends the batch cleanly; a second SIGINT or SIGTERM ends the run at once."""
    loop = asyncio.get_running_loop()
    interrupted = Interruption()

    def interrupt(number: signal.Signals) -> None:
        if not interrupted.is_set():
            tell(f"interrupted ({number.name}): writing what is there; once more ends at once")
            interrupted.strike(number)
        elif number in ENDING and time.monotonic() - interrupted.at_s > SAME_S:
            restore()
            os.kill(os.getpid(), number)

    def restore() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, interrupt, number)
    try:
        yield interrupted
    finally:
        restore()
