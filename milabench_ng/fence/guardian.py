"""The guardian: a program that ends what a run started when the orchestrator is gone.

`python -I -S guardian.py`, in its own session, waits for a pipe from the orchestrator, whose lines name what to remove:
`group DEVICE INODE PATH`, or `process PID START` for a process of a tenant that no group holds. The end of the pipe,
which the kernel causes even after SIGKILL, triggers the removal. Standard library only, like what it imports.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time

if __name__ == "__main__":  # isolated, so the package is not on the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))

from milabench_ng.fence.kernel.processes import Process, followed, read_stat, read_table
from milabench_ng.fence.killing import NotOursError, OwnGroup, send, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE_S = 20.0


class Kin:
    """Processes of tenants that no group holds: those that were named, all in their sessions, and all that descends
    from these."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        """``selector``: tells when a leader of a session has ended; the data is the leader."""
        self._known: dict[Process, None] = {}
        self._selector = selector

    def add(self, process: Process) -> None:
        """Note one, and hold it if it leads a session: when it ends, its number is still known to be its own."""
        self._known[process] = None
        with contextlib.suppress(OSError):  # it has just ended, or there are too many
            stat = read_stat(process.pid)
            if stat is not None and (stat.session, stat.start) == process:
                self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, process)

    def leader_ended(self, descriptor: int, leader: Process) -> None:
        """A leader has ended: note whoever is in its session now, while its number cannot be another's yet."""
        self._selector.unregister(descriptor)
        os.close(descriptor)
        table = read_table()
        if leader.pid not in table or table[leader.pid].start == leader.start:
            self._known |= {Process(pid, one.start): None for pid, one in table.items() if one.session == leader.pid}

    def members(self) -> set[int]:
        """The pids of those that live."""
        return set(followed(self._known, read_table()))

    def proved(self, pids: Iterable[int]) -> set[int]:
        """Those of ``pids`` that belong to them at this moment."""
        return set(pids) & self.members()

    def end(self, patience_s: float) -> None:
        """Kill until none is left or the time is up."""
        end = time.monotonic() + patience_s
        while (members := self.members()) and time.monotonic() < end:
            with contextlib.suppress(NotOursError):  # one has ended, and its pid is another's: it is listed no more
                send(signal.SIGKILL, members, self)
            time.sleep(0.01)


def main() -> int:
    """Read the pipe to its end, then remove what it named."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    kin, groups, rest, ended = Kin(selector), list[OwnGroup](), b"", False
    while not ended:
        for key, _ in selector.select():
            if key.data is not None:
                kin.leader_ended(key.fd, key.data)
                continue
            chunk = os.read(key.fd, 1 << 16)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                what, first, second, *path = os.fsdecode(line).split(" ", 3)
                if what == "group":
                    groups.append(OwnGroup(path[0], int(first), int(second)))
                else:
                    kin.add(Process(int(first), int(second)))
            ended = not chunk
    selector.unregister(sys.stdin.fileno())
    for key, _ in selector.select(0):
        kin.leader_ended(key.fd, key.data)
    kin.end(PATIENCE_S)
    return 1 if groups and sweep(groups, PATIENCE_S).left else 0


if __name__ == "__main__":
    sys.exit(main())
