"""Follows tenants without groups by session and descent in /proc, for the back ends that fence nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from milabench_ng.fence import guardian
from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.fence.runs import Guardian
from milabench_ng.node.conditions import kernel_table
from milabench_ng.records.isolation import Usage

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


Owners = dict[int, "Followed"]


class Followed:
    """The processes of one tenant: the session that its first process made on entry, and all descendants."""

    def __init__(self, name: str, guardian: Guardian, owners: Owners) -> None:
        """`owners` maps sessions to owners, over all tenants of the run: a rank descends from another's agent."""
        self._name = name
        self._guardian = guardian
        self._owners = owners

    def adopt(self, pid: int) -> None:
        """Make the process and what it starts the tenant's.

        Raises IsolationMismatch if it does not lead its session, which is then another's, perhaps our own.
        """
        try:
            session = os.getsid(pid)
        except ProcessLookupError as error:
            raise ProcessLookupError(f"there is no process {pid} any more") from error
        if session != pid:
            raise IsolationMismatch(
                f"isolation: process {pid} of {self._name} is in session {session}: it has not entered."
            )
        self._own({session})

    def pids(self) -> tuple[int, ...]:
        """The current processes. Call it often: a daemon whose ancestors died between two calls is lost."""
        sessions = self._sessions()
        if not sessions:
            return ()
        found = guardian.session_members(sessions)
        self._own(set(found.values()) - self._owners.keys())
        return tuple(sorted(pid for pid, session in found.items() if self._owners[session] is self))

    def kill(self) -> None:
        """Send SIGKILL to all of them."""
        guardian.kill_all(self.pids)

    def end(self, patience_s: float) -> bool:
        """Kill until none is left or the time is up; return whether none is left."""
        limit = time.monotonic() + patience_s
        while self.pids():
            self.kill()
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        for session in self._sessions():  # its number may be reused
            self._guardian.mind("forget", session)
            del self._owners[session]
        return True

    def usage(self) -> Usage:
        """Sums over the current processes: memory as PSS, so that shared pages count once."""
        pids = self.pids()
        memory = [_smaps(pid) for pid in pids]
        return Usage(
            cpu_usec=sum(map(_cpu_usec, pids)),
            memory_bytes=sum(fields.get("Pss", 0) for fields in memory),
            anon_bytes=sum(fields.get("Pss_Anon", 0) for fields in memory),
            shmem_bytes=sum(fields.get("Pss_Shmem", 0) for fields in memory),
            pids_peak=sum(_threads(pid) for pid in pids),
        )

    def cpu_usec(self) -> int:
        """User and system time of the current processes and the children that they have waited for."""
        return sum(map(_cpu_usec, self.pids()))

    def _sessions(self) -> set[int]:
        return {session for session, owner in self._owners.items() if owner is self}

    def _own(self, sessions: set[int]) -> None:
        for session in sessions - self._owners.keys():
            self._owners[session] = self
            self._guardian.mind("session", session)


def _smaps(pid: int) -> dict[str, int]:
    """Bytes by field of /proc/PID/smaps_rollup; empty for a process that is gone."""
    return {name: 1024 * kib for name, kib in kernel_table(Path(f"/proc/{pid}/smaps_rollup")).items()}


def _cpu_usec(pid: int) -> int:
    """User and system time of the process and the children that it has waited for."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) * 1_000_000 // _TICKS_PER_S


def _threads(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[17]) if fields else 0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty for a process that is gone."""
    return host_text(f"{pid}/stat").rpartition(")")[2].split()
