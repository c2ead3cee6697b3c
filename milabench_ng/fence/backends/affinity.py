"""Back end `affinity`: CPUs by sched_setaffinity, RAM by a watchdog. A tenant can leave both: NOT ISOLATED.

For nodes where nothing can be fenced. Uses neither RLIMIT_AS (CUDA reserves far more addresses than it uses) nor
RLIMIT_NPROC (it counts all processes of the user).
"""

from __future__ import annotations

import os
import time

import msgspec

from milabench_ng.fence.backends import none
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import OOM_SCORE_ADJ, FenceEntry
from milabench_ng.fence.process_tracking import Owners
from milabench_ng.fence.runs import Guardian
from milabench_ng.model.errors import IsolationError
from milabench_ng.records.isolation import GroupEvents, IoMethod, Share, Tier, Usage

NAME = "affinity"
WARM_WORKERS = True
GROUPS_BY = none.GROUPS_BY
IO_METHOD: IoMethod | None = None
MARK = "NOT ISOLATED: CPUs by affinity only, RAM by a watchdog. Tenants can disturb each other."
WATCH_S = 0.5

bounds = none.bounds


def tier(capabilities: Capabilities) -> Tier | None:  # noqa: ARG001  (same shape as its siblings)
    """Works everywhere."""
    return "affinity"


class AffinityGroup(none.NoneGroup):
    """One tenant's processes, bound to the CPUs of its share, and stopped if they exceed its RAM."""

    def __init__(self, name: str, share: Share, guardian: Guardian, owners: Owners) -> None:
        super().__init__(name, share, guardian, owners)
        self._watched_s = -WATCH_S
        self._stopped = 0

    @property
    def entry(self) -> FenceEntry:
        return FenceEntry(cpus=self.share.cpus, oom_score_adj=OOM_SCORE_ADJ, confined=True)

    def events(self) -> GroupEvents:
        return msgspec.structs.replace(super().events(), oom_kill=self._stopped)

    def watch(self) -> Usage:
        """Runs at most every half second: adding up memory maps takes milliseconds per process."""
        now_s = time.monotonic()
        if self._last is not None and now_s - self._watched_s < WATCH_S:
            return self._last
        self._watched_s = now_s
        usage = self.usage()
        if (usage.memory_bytes or 0) > self.share.memory_bytes:
            self._stopped += 1
            self.kill()
        return usage


class AffinityFence(none.NoneFence):
    """The fence of one run; makes no groups either."""

    backend = NAME
    tier: Tier = "affinity"

    def __init__(self, capabilities: Capabilities) -> None:
        super().__init__(capabilities)
        self.notes = (*capabilities.messages, MARK)

    def create(self, name: str, share: Share) -> AffinityGroup:
        if any(cpu not in os.sched_getaffinity(0) for cpu in share.cpus):
            raise IsolationError(
                f"isolation: {name} requested CPUs {share.cpus}, but this process may not use all of them. "
                "Start mnb where it may (taskset, cpuset), or use fewer tenants."
            )
        group = AffinityGroup(name, share, self._guardian, self._owners)
        self._groups.append(group)
        return group


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> AffinityFence:  # noqa: ARG001
    """Open the fence of one run; without groups, the run's name is not needed."""
    return AffinityFence(capabilities)
