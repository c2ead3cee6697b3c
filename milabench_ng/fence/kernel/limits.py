"""How the kernel schedules and limits a process, beside its groups: what it may have inherited from a shell.

sched(7), getrlimit(2); /proc/PID/limits has the soft limits that hold.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from milabench_ng.fence.kernel.processes import proc_threads
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.records.isolation import Scheduling

_CLASSES = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr", os.SCHED_BATCH: "batch"}
_CLASSES |= {os.SCHED_IDLE: "idle", 6: "deadline"}
_LIMITS = ("address space", "data size", "resident set", "cpu time", "file size", "open files", "processes")


def read_scheduling(pid: int) -> Scheduling:
    """How process `pid` is scheduled and limited. Raises ProcessLookupError or FileNotFoundError if it is gone."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft = {line[4:26].strip(): line[26:].split()[0] for line in lines if line.startswith("Max ")}
    return Scheduling(
        policy=_name(os.sched_getscheduler(pid)),
        nice=os.getpriority(os.PRIO_PROCESS, pid),
        limits={name: int(soft[name]) for name in _LIMITS if soft[name] != "unlimited"},
    )


def privileges(pid: int) -> Iterator[str]:
    """What puts a thread of process `pid` before those of others; nothing if it is gone."""
    for schedule in schedules(pid).values():
        policy = _name(schedule.policy)
        if policy in ("fifo", "rr", "deadline"):
            yield f"scheduling class {policy}"
        if schedule.nice < 0:
            yield f"niceness {schedule.nice}"


class ThreadSchedule(NamedTuple):
    """What decides when and where one thread runs, beside its groups."""

    policy: int
    nice: int
    cpus: frozenset[int]

    def changed(self, now: ThreadSchedule) -> Iterator[str]:
        """What ``now`` is otherwise. Pure."""
        if now.policy != self.policy:
            yield f"scheduling class {_name(now.policy)} instead of {_name(self.policy)}"
        if now.nice != self.nice:
            yield f"niceness {now.nice} instead of {self.nice}"
        if now.cpus != self.cpus:
            yield f"CPUs {format_ids(now.cpus)} instead of {format_ids(self.cpus)}"


def schedules(pid: int) -> dict[int, ThreadSchedule]:
    """Of all threads of process `pid`, by thread; those that end meanwhile are left out."""
    found = {}
    for thread in proc_threads(pid):
        with contextlib.suppress(ProcessLookupError):
            policy, nice = os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)
            found[thread] = ThreadSchedule(policy, nice, frozenset(os.sched_getaffinity(thread)))
    return found


def _name(policy: int) -> str:
    number = policy & ~os.SCHED_RESET_ON_FORK
    return _CLASSES.get(number, str(number))
