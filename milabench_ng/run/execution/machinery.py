"""What mnb itself uses of the CPUs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil


class Machinery:
    """What mnb's own processes have used. One that ends keeps what it had used when last seen, so the sum only rises.

    A worker server that was killed and started again would otherwise look like a counter that was set back.
    """

    def __init__(self) -> None:
        self._used: dict[psutil.Process, float] = {}

    def cpu_s(self, own: Iterable[int]) -> float:
        """User and system time of the processes ``own``, and of all that were asked for before."""
        for pid in own:
            with suppress(psutil.Error):  # it is gone
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._used[process] = float(times.user + times.system)
        return sum(self._used.values())
