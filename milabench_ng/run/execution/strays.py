"""Finds processes of tenants that have left their fence, by descent: nobody can leave that.

Worker, worker server and orchestrator adopt the orphans among their descendants (`fence.entry.adopt_orphans`), so that
a daemon stays below them, whatever group, session or environment it gives itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Sequence

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.kernel.limits import privileges
from milabench_ng.fence.kernel.processes import Family, Process, Table, below_us, read_table
from milabench_ng.fence.killing import NotOursError, send

_PATIENCE_S = 2.0
_TOLERANCE, _TOLERANCE_S = 0.02, 0.5
"""CPU time that a launch may have used before it entered, beside the inaccuracy of the counters."""


class Sighting(msgspec.Struct, frozen=True):
    """What was seen of the processes of a launch: what is outside all its fences (empty: nothing), and what puts a
    thread of it before those of others."""

    departed: str = ""
    privileged: tuple[str, ...] = ()


def look(launch: Family, groups: Sequence[Group], table: Table) -> Sighting:
    """Look at all processes of a launch, which has entered ``groups``. Those outside are killed.

    Raises OSError if one of them cannot be read.
    """
    family = launch.members(table)
    used_s = sum(table[one.pid].cpu_s for one in family)
    departed: dict[int, str] = {}
    for one in family:
        outside = [group.outside(one.pid) for group in groups]
        if all(outside):
            departed[one.pid] = outside[0]
    with contextlib.suppress(NotOursError):  # one has ended, and its pid is another's
        send(signal.SIGKILL, departed, launch)
    privileged = dict.fromkeys(what for one in family for what in privileges(one.pid))
    return Sighting(next(iter(departed.values()), _uncounted(used_s, groups)), tuple(privileged))


def running() -> frozenset[Process]:
    return frozenset(below_us().members(read_table()))


def end_strays(known: Collection[Process], ours: Sequence[Family], foreign: Sequence[Family] = ()) -> tuple[str, ...]:
    """Kill all processes below this one that are not ``known``; return their names with their pids.

    Call it when all groups of a batch are gone, with the processes that ran before it. Processes in the families
    ``foreign`` belong to others and are not strays. What is in none of the families ``ours`` is named too, and not
    killed: this process may have adopted it from somebody else's.
    """
    table = read_table()
    expected = {*known, *(one for family in foreign for one in family.members(table))}
    unknown = [one for one in below_us().members(table) if one not in expected and not table[one.pid].ended]
    for family in ours:
        with contextlib.suppress(NotOursError):  # one has ended, and its pid is another's
            _reap(send(signal.SIGKILL, family.proved(one.pid for one in unknown), family))
    return tuple(f"{table[one.pid].name} ({one.pid})" for one in unknown)


def _reap(killed: Collection[int]) -> None:
    """Wait for those of the killed that this process has adopted."""
    left, end_s = list(killed), time.monotonic() + _PATIENCE_S
    while left and time.monotonic() < end_s:
        left = list(filter(_is_dying, left))
        time.sleep(0.01)


def _is_dying(pid: int) -> bool:
    """Whether a child of this process has not ended yet; waits for one that has. False for another's child."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _uncounted(used_s: float, groups: Sequence[Group]) -> str:
    """What processes used of the CPUs although their groups did not count it; empty for nothing."""
    counted = [group.usage().cpu_usec for group in groups]
    counted_s = sum(one or 0 for one in counted) / 1e6
    if None in counted or used_s <= counted_s * (1 + _TOLERANCE) + _TOLERANCE_S:
        return ""
    return f"its processes used {used_s:.1f} s of CPU time, and only {counted_s:.1f} s of it in its group"
