"""Follows tenants without groups by session and descent in /proc, for the back ends that fence nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.fence.kernel.processes import Process, Table, followed, identify, read_table
from milabench_ng.fence.killing import NotOursError, send
from milabench_ng.fence.runs import Guardian
from milabench_ng.node.kernel_files import kernel_table
from milabench_ng.records.isolation import Usage

Owners = dict[Process, "Followed"]


class Followed:
    """The processes of one tenant: those that entered, all in their sessions, and all descendants."""

    def __init__(self, name: str, guardian: Guardian, owners: Owners) -> None:
        """`owners` maps processes to owners, over all tenants of the run: a rank descends from another's agent."""
        self._name = name
        self._guardian = guardian
        self._owners = owners

    def adopt(self, process: Process) -> None:
        """Make the process, which is known to be of this launch, and what it starts the tenant's.

        Raises IsolationMismatch if it does not lead its session, which is then another's, perhaps our own.
        """
        session = os.getsid(process.pid)
        if identify(process.pid) != process:
            raise ProcessLookupError(f"there is no process {process.pid} any more")
        if session != process.pid:
            raise IsolationMismatch(
                f"isolation: process {process.pid} of {self._name} is in session {session}: it has not entered."
            )
        self._own(process, self)

    def pids(self) -> tuple[int, ...]:
        """The current processes. Call it often: a daemon whose ancestors died between two calls is lost."""
        return tuple(sorted(self._living()[0]))

    def proved(self, pids: Iterable[int]) -> set[int]:
        """Those of ``pids`` that are the tenant's at this moment."""
        return set(pids) & set(self.pids())

    def kill(self) -> None:
        """Send SIGKILL to all of them."""
        send(signal.SIGKILL, self.pids(), self)

    def end(self, patience_s: float) -> bool:
        """Kill until none is left or the time is up; return whether none is left."""
        limit = time.monotonic() + patience_s
        while self.pids():
            with contextlib.suppress(NotOursError):  # one has ended, and its pid is another's: it is listed no more
                self.kill()
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        for process in [process for process, owner in self._owners.items() if owner is self]:
            del self._owners[process]
        return True

    def usage(self) -> Usage:
        """Sums over the current processes: memory as PSS, so that shared pages count once."""
        pids, table = self._living()
        memory = [kernel_table(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids]
        return Usage(
            cpu_usec=_cpu_usec(pids, table),
            memory_bytes=sum(fields.get("Pss", 0) for fields in memory),
            anon_bytes=sum(fields.get("Pss_Anon", 0) for fields in memory),
            shmem_bytes=sum(fields.get("Pss_Shmem", 0) for fields in memory),
            pids_peak=sum(table[pid].threads for pid in pids),
        )

    def cpu_usec(self) -> int:
        """User and system time of the current processes and the children that they have waited for."""
        return _cpu_usec(*self._living())

    def _living(self) -> tuple[list[int], Table]:
        """The current processes, which are known from now on, and the table that they are in."""
        if self not in self._owners.values():
            return [], {}
        table = read_table()
        for process in [one for one in self._owners if one.pid not in table or table[one.pid].start != one.start]:
            del self._owners[process]
        found = followed(self._owners, table)
        for pid, owner in found.items():
            self._own(Process(pid, table[pid].start), owner)
        return [pid for pid, owner in found.items() if owner is self], table

    def _own(self, process: Process, owner: Followed) -> None:
        if process not in self._owners:
            self._guardian.mind(process)
        self._owners[process] = owner


def _cpu_usec(pids: Iterable[int], table: Table) -> int:
    """User and system time of the processes and the children that they have waited for."""
    return round(1e6 * sum(table[pid].cpu_s for pid in pids))
