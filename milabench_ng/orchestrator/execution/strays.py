"""Finds processes of tenants that have left their fence, by descent: nobody can leave that.

Worker, worker server and orchestrator adopt the orphans among their descendants (`fence.entry.adopt_orphans`), so that
a daemon stays below them, whatever group, session or environment it gives itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import psutil

from milabench_ng.fence.interface import Group
from milabench_ng.fence.kernel.limits import privileges

_TOLERANCE, _TOLERANCE_S = 0.02, 0.5
"""CPU time that a launch may have used before it entered, beside the inaccuracy of the counters."""
_PATIENCE_S = 2.0


def departed(pids: Iterable[int], groups: Sequence[Group]) -> str:
    """What is outside all fences of a launch, of the processes ``pids`` that entered and all that they started.

    Empty if nothing is. Processes outside are killed.
    """
    found = ""
    processes = _families(pids)
    for process in processes:
        outside = [group.outside(process.pid) for group in groups]
        if all(outside):
            found = found or outside[0]
            _kill(process)
    return found or _uncounted(sum(map(_cpu_s, processes)), groups)


def privileged(pids: Iterable[int]) -> tuple[str, ...]:
    """What puts a thread of a launch before those of others, of the processes ``pids`` and all that they started."""
    found = (what for process in _families(pids) for what in privileges(process.pid))
    return tuple(dict.fromkeys(found))


def running(besides: Iterable[int] = ()) -> frozenset[int]:
    """The processes below this one, and ``besides``."""
    return frozenset({*besides, *(process.pid for process in psutil.Process().children(recursive=True))})


def end_strays(known: Collection[int]) -> tuple[str, ...]:
    """Kill all processes below this one that are not ``known``; return their names with their pids.

    Call it when all groups of a batch are gone, with the processes that ran before it.
    """
    unknown = [process for process in psutil.Process().children(recursive=True) if process.pid not in known]
    found = tuple(name for process in unknown if (name := _name(process)))
    for process in unknown:
        _kill(process)
    psutil.wait_procs(unknown, timeout=_PATIENCE_S)  # reaps those that this process has adopted
    return found


def _families(pids: Iterable[int]) -> list[psutil.Process]:
    """These processes and all below them."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            first = psutil.Process(pid)
            found |= {process.pid: process for process in (first, *first.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    return list(found.values())


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
    """SIGKILL, to this process only (psutil compares the start time)."""
    try:
        process.kill()
    except psutil.Error:
        return
