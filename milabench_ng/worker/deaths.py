"""Which child of a process died first, and of what: before whoever started it asks, and without taking that from it."""

from __future__ import annotations

import os
import signal
import threading
import time


class FirstDeath(threading.Thread):
    """Waits for the first child to end (waitid(2) with WNOWAIT leaves its status to be read again).

    When one rank is killed, the others fail an instant later because they lost it; only the first death is the cause.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.pid: int | None = None
        self.signal: signal.Signals | None = None
        """What it was killed by; None if it ended by itself."""

    def run(self) -> None:
        """Wait."""
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
