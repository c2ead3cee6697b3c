"""Ends a run early: cleanly on the first signal, at once on a second."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Ctrl-C, a closed terminal, and what batch systems send before a job's time is up (sbatch(1), ``--signal``)."""
ENDING = (signal.SIGINT, signal.SIGTERM)
SAME_S = 1.0
"""Signals within this time count as one: a batch system signals a job's steps and its shell, which passes it on."""


class Interruption(asyncio.Event):
    """Set when the run must stop."""

    by: str = ""
    """The signal's name."""
    at_s: float = float("inf")
    """Time of the signal (monotonic)."""

    def strike(self, number: signal.Signals) -> None:
        """Note the signal that stops the run."""
        self.by, self.at_s = number.name, time.monotonic()
        self.set()


@contextmanager
def interruptions(tell: Callable[[str], None]) -> Iterator[Interruption]:
    """Set by the first of `SIGNALS`, ending the batch cleanly; a second SIGINT or SIGTERM ends the run at once."""
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
