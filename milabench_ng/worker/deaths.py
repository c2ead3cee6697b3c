"""Finds which child of a process died first, and of what, without reaping it before its starter does."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import NamedTuple


class Death(NamedTuple):
    """How a process ended."""

    pid: int
    signal: signal.Signals | None
    """The signal that killed it; None if it ended by itself."""


class FirstDeath:
    """The first child to end (waitid(2) with WNOWAIT leaves its status to be read again).

    When one rank is killed, the others fail an instant later because it is gone; only the first death is the cause.
    """

    def __init__(self) -> None:
        self.seen: Death | None = None

    def note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The handler of SIGCHLD."""
        if self.seen is not None:
            return
        with contextlib.suppress(ChildProcessError):  # its starter was faster
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                killed = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self.seen = Death(ended.si_pid, signal.Signals(ended.si_status) if killed else None)


def first_killed(seen: Death | None, noted: Death) -> Death | None:
    """The death by a signal that ended a launch of several ranks; None if its first rank ended by itself.

    ``seen``: what `FirstDeath` saw. It misses a death that the agent reaps before the handler runs; what it sees next
    is the end of another rank, most often by the SIGTERM that the agent sends to those that remain.
    ``noted``: what the agent noted at its poll, the lowest rank of those that had ended by then.
    """
    if seen is not None and seen.signal not in (None, signal.SIGTERM):
        return seen
    return noted if noted.signal is not None else None
