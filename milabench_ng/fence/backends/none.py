"""Back end `none`: no fence at all, to measure the effect of the fence itself on a result. NOT ISOLATED.

Tenants are followed but not held; `affinity` adds what an ordinary process can do about others.
"""

from __future__ import annotations

import os
from pathlib import Path

from milabench_ng.fence import isolation_check
from milabench_ng.fence.backends import cgroup2
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import OOM_SCORE_ADJ, CounterFiles, FenceEntry
from milabench_ng.fence.kernel import counters1, counters2
from milabench_ng.fence.kernel.processes import Process
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.readings import host_oom_kills
from milabench_ng.fence.kernel.whereabouts import outside
from milabench_ng.fence.process_tracking import Followed, Owners
from milabench_ng.fence.runs import Guardian
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.records.isolation import Effective, GroupEvents, GroupsBy, IoMethod, ProcView, Share, Tier, Usage

NAME = "none"
WARM_WORKERS = True
GROUPS_BY: GroupsBy = "nobody"
IO_METHOD: IoMethod | None = "none"
MARK = "NOT ISOLATED: no isolation was requested. Tenants share all CPUs and RAM."


def tier(capabilities: Capabilities) -> Tier | None:  # noqa: ARG001  (same shape as its siblings)
    """Works everywhere."""
    return "none"


def bounds(capabilities: Capabilities) -> Bounds:
    """This process's affinity, and the limits of the group that it shares with the tenants.

    Shares are computed without a fence too, so that thread pools have the same sizes as inside one.
    """
    own = Path(capabilities.own) if capabilities.own else None
    read = counters2.memory_limits if capabilities.mode == "v2" else counters1.memory_limits
    return cgroup2.least_memory(tuple(sorted(os.sched_getaffinity(0))), None, read(own) if own else ())


class NoneGroup:
    """One tenant's processes: the session that its first process made on entry, and all descendants."""

    def __init__(self, name: str, share: Share, guardian: Guardian, owners: Owners) -> None:
        self.name = name
        self.share = share
        self._followed = Followed(name, guardian, owners)
        self._last: Usage | None = None

    @property
    def entry(self) -> FenceEntry:
        return FenceEntry(oom_score_adj=OOM_SCORE_ADJ)

    @property
    def files(self) -> CounterFiles:
        """No files: there is no group."""
        return CounterFiles()

    def verify(self, process: Process) -> tuple[Effective, ProcView]:
        """Verify it as the siblings do; from then on, it and its descendants are this tenant's."""
        self._followed.adopt(process)
        effective, proc = self.effective(), read_process(process.pid)
        isolation_check.check(self.name, self.share, effective, proc, {}, pin=bool(self.entry.cpus))
        return effective, proc

    def effective(self) -> Effective:
        """No limits: the kernel enforces nothing."""
        return Effective()

    def events(self) -> GroupEvents:
        return GroupEvents(host_oom_kill=host_oom_kills())

    def usage(self) -> Usage:
        self._last = isolation_check.with_maxima(self._last, self._followed.usage())
        return self._last

    def watch(self) -> Usage:
        """Only list processes: adding up memory maps would disturb the comparison. Return the first reading, if any."""
        self._followed.pids()
        return self._last or self.usage()

    def pids(self) -> tuple[int, ...]:
        return self._followed.pids()

    def outside(self, pid: int) -> str:
        return outside(pid, {}, self.entry.cpus)

    def kill(self) -> None:
        self._followed.kill()

    def remove(self, patience_s: float = 2.0) -> bool:
        return self._followed.end(patience_s)


class NoneFence:
    """The fence of one run; makes no groups, but its guardian knows the sessions."""

    backend = NAME
    groups_by = GROUPS_BY
    tier: Tier = "none"
    parent = ""

    def __init__(self, capabilities: Capabilities) -> None:
        self.mode = capabilities.mode
        self.kernel = capabilities.kernel
        self.notes: tuple[str, ...] = (MARK,)
        self._guardian = Guardian()
        self._owners: Owners = {}
        self._groups: list[NoneGroup] = []

    def create(self, name: str, share: Share) -> NoneGroup:
        self._groups.append(NoneGroup(name, share, self._guardian, self._owners))
        return self._groups[-1]

    def close(self) -> tuple[str, ...]:
        left = [group for group in self._groups if not group.remove()]
        self._guardian.dismiss()  # it goes on trying for longer
        still = [group.name for group in left if not group.remove(patience_s=0.0)]
        return tuple(f"isolation: processes of {name} are still running." for name in still)


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> NoneFence:  # noqa: ARG001
    """Open the fence of one run; without groups, the run's name is not needed."""
    return NoneFence(capabilities)
