"""Names the signal that killed a loader process, whose broken connections are seen before its death is.

A dying process closes its sockets first. Torch's handler of SIGCHLD raises what killed it an instant later, wherever
the main thread is then, and at most once.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DYING_S = 1.0
"""How long a process may take from its last connection to its end."""
POLL_S = 0.01


@contextmanager
def naming_deaths() -> Iterator[None]:
    """Raise RuntimeError in torch's words where a loader process was killed, not what that broke."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        _tell(_killed_child(time.monotonic() + DYING_S), error)
        raise
    except RuntimeError as error:
        _tell(_reaped_child(error), error)
        raise


def _tell(killed: tuple[int, int] | None, error: Exception) -> None:
    if killed is not None:
        pid, number = killed
        told = f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(number)}."
        raise RuntimeError(told) from error


def _reaped_child(error: RuntimeError) -> tuple[int, int] | None:
    """A loader process whose death torch saw before its handler did, and its signal.

    Torch has reaped it, says only that it "exited unexpectedly", and keeps what it knows in this variable.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for process in frame.f_locals.get("failed_workers", ()):
            if process.exitcode < 0:
                return process.pid, -process.exitcode
    return None


def _killed_child(until_s: float) -> tuple[int, int] | None:
    """A child that a signal ended and its signal, without reaping it; None if there is none until then (monotonic)."""
    while True:
        for pid in _children():  # one by one: of all together, the kernel tells only the first that has ended
            with suppress(ChildProcessError):  # it was reaped
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                if ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                    return ended.si_pid, ended.si_status
        if time.monotonic() >= until_s:
            return None
        time.sleep(POLL_S)


def _children() -> list[int]:
    """Of this process, as proc(5) lists them (Linux 3.5, CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, path.read_text().split())
    return found
