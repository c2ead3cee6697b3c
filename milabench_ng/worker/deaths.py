"""Finds which child of a process died first, and of what, without reaping it before its starter does."""

from __future__ import annotations

import os
import signal
import threading
import time


class FirstDeath(threading.Thread):
    """Waits for the first child to end (waitid(2) with WNOWAIT leaves its status to be read again).

    When one rank is killed, the others fail an instant later because it is gone; only the first death is the cause.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.pid: int | None = None
        self.signal: signal.Signals | None = None
        """The signal that killed it; None if it ended by itself."""

    def run(self) -> None:
        """Wait for the first death."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                time.sleep(0.01)  # there is none yet
                continue
            if ended is not None:
                self.pid = ended.si_pid
                killed = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self.signal = signal.Signals(ended.si_status) if killed else None
                return
