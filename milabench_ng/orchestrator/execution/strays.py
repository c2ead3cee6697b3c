"""Finds processes of tenants that have left their fence, by descent: nobody can leave that.

Worker, worker server and orchestrator adopt the orphans among their descendants (`fence.entry.adopt_orphans`), so that
a daemon stays below them, whatever group, session or environment it gives itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import psutil

from milabench_ng.fence.interface import Group
from milabench_ng.fence.kernel.limits import privileges
from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.grouping import grouped

_PATIENCE_S = 2.0
_TOLERANCE, _TOLERANCE_S = 0.02, 0.5
"""CPU time that a launch may have used before it entered, beside the inaccuracy of the counters."""


class Sighting(msgspec.Struct, frozen=True):
    """What was seen of the processes of a launch: what is outside all its fences (empty: nothing), and what puts a
    thread of it before those of others."""

    departed: str = ""
    privileged: tuple[str, ...] = ()


def look(pids: Iterable[int], groups: Sequence[Group], parents: Mapping[int, int]) -> Sighting:
    """Look at the processes ``pids`` of a launch, which entered ``groups``, and at all that they started.

    ``parents``: as `living_parents` gives them. Processes outside are killed.
    """
    family = _processes(_below(pids, parents))
    used_s = sum(map(_cpu_s, family))
    found = ""
    for process in family:
        outside = [group.outside(process.pid) for group in groups]
        if all(outside):
            found = found or outside[0]
            _kill(process)
    privileged = dict.fromkeys(what for process in family for what in privileges(process.pid))
    return Sighting(found or _uncounted(used_s, groups), tuple(privileged))


def living_parents() -> dict[int, int]:
    """The parent of every process of the node."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    fields = {pid: host_text(f"{pid}/stat").rpartition(")")[2].split() for pid in pids}
    return {pid: int(stat[1]) for pid, stat in fields.items() if stat}


def running() -> frozenset[int]:
    """The processes below this one."""
    return frozenset(_below([os.getpid()], living_parents())[1:])


def end_strays(known: Collection[int]) -> tuple[str, ...]:
    """Kill all processes below this one that are not ``known``; return their names with their pids.

    Call it when all groups of a batch are gone, with the processes that ran before it.
    """
    unknown = _processes(running() - frozenset(known))
    found = tuple(name for process in unknown if (name := _name(process)))
    for process in unknown:
        _kill(process)
    psutil.wait_procs(unknown, timeout=_PATIENCE_S)  # reaps those that this process has adopted
    return found


def _below(pids: Iterable[int], parents: Mapping[int, int]) -> list[int]:
    """These processes and all below them that live."""
    children = grouped(parents, lambda pid: parents[pid])
    found = [pid for pid in pids if pid in parents]
    for pid in found:  # grows on the way
        found += children.get(pid, ())
    return found


def _processes(pids: Iterable[int]) -> list[psutil.Process]:
    """Those that still live; psutil tells them from later ones with the same number."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _uncounted(used_s: float, groups: Sequence[Group]) -> str:
    """What processes used of the CPUs although their groups did not count it; empty for nothing."""
    counted = [group.usage().cpu_usec for group in groups]
    counted_s = sum(one or 0 for one in counted) / 1e6
    if None in counted or used_s <= counted_s * (1 + _TOLERANCE) + _TOLERANCE_S:
        return ""
    return f"its processes used {used_s:.1f} s of CPU time, and only {counted_s:.1f} s of it in its group"


def _cpu_s(process: psutil.Process) -> float:
    """User and system time of a process and of the children that it has waited for; 0 if it is gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _name(process: psutil.Process) -> str:
    """Its name and pid; empty if it has ended."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.name()} ({process.pid})"
    except psutil.Error:
        return ""


def _kill(process: psutil.Process) -> None:
    """SIGKILL; nothing for one that is gone."""
    with contextlib.suppress(psutil.Error):
        process.kill()
