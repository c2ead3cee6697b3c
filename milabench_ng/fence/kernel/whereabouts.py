"""Where the threads of a process are: the files of a group show only those that are still in it (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from milabench_ng.cgroup_files import format_ids
from milabench_ng.fence.kernel.mounts import parse_own_groups
from milabench_ng.fence.kernel.readings import host_text


def outside(pid: int, groups: Mapping[str, str], cpus: Collection[int]) -> str:
    """What of a process, or of a thread of it, is in none of ``groups`` (by controller) or may run on other ``cpus``.

    Empty if nothing is, or it has ended. No ``cpus``: any.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return ""
    found = (what for thread in threads for what in _outside(f"{pid}/task/{thread}", int(thread), groups, set(cpus)))
    return next(found, "")


def _outside(place: str, thread: int, groups: Mapping[str, str], cpus: set[int]) -> Iterator[str]:
    inside = parse_own_groups(host_text(f"{place}/cgroup"))
    try:
        allowed = os.sched_getaffinity(thread)
    except ProcessLookupError:
        return
    status = host_text(f"{place}/status")
    if "VmSize" not in status:  # it is ending, and the kernel has moved it to the root of every hierarchy
        return
    name = status.split("\n", 1)[0].split("\t")[-1]
    for controller, group in groups.items():
        where = inside.get(controller, "")
        if where != group and not where.startswith(f"{group}/"):
            yield f"{name} ({thread}) is in group {where} of {controller or 'cgroup2'} and not in {group}"
    if cpus and not allowed <= cpus:
        yield f"{name} ({thread}) may run on CPUs {format_ids(allowed)}, its share has {format_ids(cpus)}"
