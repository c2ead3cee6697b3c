"""What the groups of `cgroup1` and `cgroup2` have in common: the kernel holds them to their limits.

A tenant with parts of caches has a group in resctrl beside them, which is entered and removed with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from milabench_ng.fence import isolation_check
from milabench_ng.fence.cache_groups import CacheGroup
from milabench_ng.fence.interface import OOM_SCORE_ADJ, FenceEntry, IsolationMismatch
from milabench_ng.fence.kernel.counters1 import Counters1
from milabench_ng.fence.kernel.counters2 import Counters2
from milabench_ng.fence.kernel.processes import Process
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.whereabouts import born_in, outside
from milabench_ng.fence.killing import OwnGroup, kill, sweep
from milabench_ng.records.isolation import Effective, GroupEvents, ProcView, Share, Usage


class KernelGroup:
    """One tenant's group in each of ``directories``; ``groups``: their names in /proc, by controller (v2: empty)."""

    def __init__(
        self,
        name: str,
        share: Share,
        directories: Iterable[Path],
        groups: Mapping[str, str],
        kernel: Counters1 | Counters2,
        shm: bool,
        cache: CacheGroup | None,
    ) -> None:
        self.name = name
        self.share = share
        paths = dict.fromkeys(map(str, directories))  # mounted together, controllers share one
        self._own = tuple(OwnGroup.noted(path) for path in paths)
        self._groups = groups
        self._kernel = kernel
        self._shm = shm
        self._cache = cache
        self._last: Usage | None = None
        self._at_kill: Effective | None = None

    @property
    def entry(self) -> FenceEntry:
        tasks = (self._cache.tasks,) if self._cache else ()
        procs = (*(f"{own.path}/cgroup.procs" for own in self._own), *tasks)
        shm_bytes = self.share.memory_bytes if self._shm else None
        return FenceEntry(procs, self.share.cpus, OOM_SCORE_ADJ, shm_bytes, confined=True)

    def verify(self, process: Process) -> tuple[Effective, ProcView]:
        effective, proc = self.effective(), read_process(process.pid)
        groups = {**born_in(process.pid), **self._groups}  # nobody moved it in the hierarchies that are not ours
        isolation_check.check(self.name, self.share, effective, proc, groups)
        for own in self._own:
            if not own.is_there():
                raise IsolationMismatch(f"isolation: {own.path} is not the group that was made for {self.name}.")
        return effective, proc

    def effective(self) -> Effective:
        return self._at_kill or self._limits()

    def events(self) -> GroupEvents:
        return self._kernel.events()

    def usage(self) -> Usage:
        usage = self._kernel.usage()
        self._last = isolation_check.with_maxima(self._last, self._cache.counted(usage) if self._cache else usage)
        return self._last

    def watch(self) -> Usage:
        self._last = isolation_check.with_maxima(self._last, self._kernel.watched())
        return self._last

    def pids(self) -> tuple[int, ...]:
        return tuple(sorted({pid for own in self._own for pid in own.members()}))

    def outside(self, pid: int) -> str:
        return outside(pid, self._groups, self.share.cpus)

    def kill(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # already removed
            self._at_kill = self._at_kill or self._limits()
        kill(self._own)

    def remove(self, patience_s: float = 2.0) -> bool:
        self._kernel.close()
        gone = not sweep(self._own, patience_s).left
        return (self._cache is None or self._cache.remove()) and gone

    def _limits(self) -> Effective:
        limits = self._kernel.limits()
        return self._cache.held(limits, self.pids()) if self._cache else limits
