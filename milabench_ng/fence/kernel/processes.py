"""Processes that cannot be mistaken for others: a pid alone is used again, a pid with its start time is not.

Standard library only, since the guardian needs it too. What is gone is told from what may not be read (proc(5)).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from milabench_ng.model.grouping import gathered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    Owner = TypeVar("Owner")

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UNSTABLE = 8
"""How often a line of parents is read again because one of them has ended."""


class Process(NamedTuple):
    """A process, for as long as it lives."""

    pid: int
    start: int
    """Clock ticks from boot to its start."""


class Stat(NamedTuple):
    """What /proc/PID/stat says of a process."""

    name: str
    state: str
    parent: int
    session: int
    cpu_ticks: int
    """CPU time of it and of the children that it has waited for, in clock ticks."""
    threads: int
    start: int

    @property
    def cpu_s(self) -> float:
        """CPU time in seconds."""
        return self.cpu_ticks / _TICKS_PER_S

    @property
    def ended(self) -> bool:
        """Whether it is only still listed."""
        return self.state in "ZX"


Table = dict[int, Stat]


def proc_is_ours() -> bool:
    """Whether /proc shows the processes of this one's pid namespace, and so what its pids mean."""
    return os.readlink("/proc/self") == str(os.getpid())


def proc_text(name: str) -> str | None:
    """A file of /proc; None if the process is gone. Raises OSError if it is there and cannot be read."""
    try:
        with open(f"/proc/{name}", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None


def working_name(place: str) -> str:
    """The name of the process or thread ``/proc/PLACE``; empty if it is gone, or ending.

    One that ends gives up its memory before its files, and before the kernel moves it to the root of every hierarchy.
    Raises OSError if it is there and cannot be read.
    """
    status = proc_text(f"{place}/status") or ""
    return status.partition("\n")[0].removeprefix("Name:\t") if "\nVmSize:" in status else ""


def proc_threads(pid: int) -> list[int]:
    """The threads of a process; none if it is gone. Raises OSError if this user may not see them."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def read_stat(pid: int) -> Stat | None:
    """The state of a process; None if there is none. Raises OSError if this user may not read it."""
    text = proc_text(f"{pid}/stat")
    if not text:
        return None
    before, _, after = text.rpartition(")")
    fields = after.split()
    return Stat(
        name=before.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu_ticks=sum(map(int, fields[11:15])),
        threads=int(fields[17]),
        start=int(fields[19]),
    )


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None if there is none. Raises OSError if this user may not read it."""
    stat = read_stat(pid)
    return None if stat is None else Process(pid, stat.start)


def is_there(process: Process) -> bool:
    """Whether it has not ended."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start == process.start and not stat.ended


def read_table() -> Table:
    """All processes that this user may read."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = read_stat(int(name))
        except PermissionError:  # another user's (hidepid)
            continue
        if stat is not None:
            found[int(name)] = stat
    return found


def lineage(pid: int) -> tuple[Process, ...]:
    """A process, its parent, and so on, as far as they can be read; empty if it is gone.

    Everything is read twice. So whoever is in it was the parent of the one before, and no later process with its pid.
    """
    for _ in range(_UNSTABLE):
        line = _line(pid)
        if line == _line(pid):
            return tuple(Process(one, stat.start) for one, stat in line)
    return ()


def _line(pid: int) -> list[tuple[int, Stat]]:
    """One reading of a line of parents, without what changes while they work."""
    found: list[tuple[int, Stat]] = []
    while pid:
        try:
            stat = read_stat(pid)
        except PermissionError:
            break
        if stat is None:
            break
        found.append((pid, stat._replace(name="", state="", cpu_ticks=0, threads=0)))
        pid = stat.parent
    return found


class Family(NamedTuple):
    """A process and all that descends from it; without ``itself``, only the latter."""

    root: Process
    itself: bool = True

    def proved(self, pids: Iterable[int]) -> set[int]:
        """Those of ``pids`` that belong to it at this moment."""
        return {pid for pid in pids if self.root in lineage(pid)[0 if self.itself else 1 :]}

    def members(self, table: Table) -> list[Process]:
        """Those that a table shows."""
        root, children = self.root.pid, children_of(table)
        if root not in table or table[root].start != self.root.start:
            return []
        found = [root]
        for pid in found:  # grows on the way
            found += children.get(pid, ())
        return [Process(pid, table[pid].start) for pid in found[0 if self.itself else 1 :]]


def below_us() -> Family:
    """What is below this process."""
    own = identify(os.getpid())
    assert own
    return Family(own, itself=False)


def children_of(table: Table) -> dict[int, list[int]]:
    return gathered((stat.parent, pid) for pid, stat in table.items())


def followed(known: Mapping[Process, Owner], table: Table) -> dict[int, Owner]:
    """Whose the living processes are: those that are known, all in their sessions, and all that descends from these.

    A session is known by a member that is known and still listed: as long, its number is not given to another. Of
    several owners, a process has that of its session before that of its parent.
    """
    listed = {one.pid: owner for one, owner in known.items() if one.pid in table and table[one.pid].start == one.start}
    children, size = children_of(table), -1
    found = dict(listed)
    while size != len(found):
        size = len(found)
        sessions = {table[pid].session: owner for pid, owner in found.items()}
        sessions |= {pid: owner for pid, owner in found.items() if table[pid].session == pid}
        sessions.pop(0, None)  # one whose leader is outside our pid namespace
        found = {pid: sessions[stat.session] for pid, stat in table.items() if stat.session in sessions} | found
        line = list(found)
        for pid in line:  # grows on the way
            for child in children.get(pid, ()):
                if child not in found:
                    found[child] = found[pid]
                    line.append(child)
    return {pid: owner for pid, owner in found.items() if not table[pid].ended}
