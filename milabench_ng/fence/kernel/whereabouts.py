"""Where the threads of a process are: the files of a group show only those that are still in it (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from milabench_ng.fence.kernel.mounts import parse_own_groups
from milabench_ng.fence.kernel.processes import proc_text, proc_threads, read_stat, working_name
from milabench_ng.node.cgroup_files import format_ids


def outside(pid: int, groups: Mapping[str, str], cpus: Collection[int]) -> str:
    """What of a process, or of a thread of it, is in none of ``groups`` (by controller) or may run on other ``cpus``.

    Empty if nothing is, or it has ended. No ``cpus``: any. Raises OSError if that cannot be read.
    """
    found = (
        what for thread in proc_threads(pid) for what in _outside(f"{pid}/task/{thread}", thread, groups, set(cpus))
    )
    return next(found, "")


def born_in(pid: int) -> dict[str, str]:
    """The groups of a process's parent, by controller: what it has not left itself, it is in. Empty if it is gone.

    Raises OSError if that cannot be read.
    """
    own = read_stat(pid)
    return controlled(parse_own_groups(proc_text(f"{own.parent}/cgroup") or "")) if own else {}


def controlled(groups: Mapping[str, str]) -> dict[str, str]:
    """Of groups by controller those that may hold a process back: all but those of named hierarchies."""
    return {controller: group for controller, group in groups.items() if not controller.startswith("name=")}


def moved(place: str, groups: Mapping[str, str]) -> str:
    """What of ``groups`` (by controller) the process or thread ``/proc/PLACE`` is in no longer.

    Empty if nothing is, or it has ended. Raises OSError if that cannot be read.
    """
    now = parse_own_groups(proc_text(f"{place}/cgroup") or "")
    found = next((one for one in groups if now.get(one, groups[one]) != groups[one]), None)
    name = "" if found is None else working_name(place)
    if found is None or not name:
        return ""
    who = f"{name} ({os.path.basename(place)})"
    return f"{who} was in group {groups[found]} of {found or 'cgroup2'} and is in {now[found]}"


def _outside(place: str, thread: int, groups: Mapping[str, str], cpus: set[int]) -> Iterator[str]:
    found = [*_elsewhere(f"{place}/cgroup", groups), *_wider(thread, cpus)]
    name = working_name(place) if found else ""
    if name:
        yield from (f"{name} ({thread}) {what}" for what in found)


def _elsewhere(path: str, groups: Mapping[str, str]) -> Iterator[str]:
    inside = parse_own_groups(proc_text(path) or "")
    for controller, group in groups.items():
        where = inside.get(controller, "")
        if where != group and not where.startswith(f"{group}/"):
            yield f"is in group {where} of {controller or 'cgroup2'} and not in {group}"


def _wider(thread: int, cpus: set[int]) -> Iterator[str]:
    try:
        allowed = os.sched_getaffinity(thread)
    except ProcessLookupError:
        return
    if cpus and not allowed <= cpus:
        yield f"may run on CPUs {format_ids(allowed)}, but its allocation has {format_ids(cpus)}"
