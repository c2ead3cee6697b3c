"""Back end `cgroup1`: cpuset, memory with memsw, pids and blkio, each in its own v1 hierarchy.

Documentation/admin-guide/cgroup-v1/. On a hybrid node every tenant also has a group in the unified hierarchy, to
kill all at once and to report pressure. v1 kills one process when memory runs out; `watch` kills the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from milabench_ng.fence.backends.cgroup2 import least_memory
from milabench_ng.fence.backends.kernel_group import KernelGroup
from milabench_ng.fence.cache_groups import CacheGroup, make_cache_group
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import CounterFiles
from milabench_ng.fence.kernel.cgroupfs import Cpuset1
from milabench_ng.fence.kernel.counters1 import Counters1, memory_limits
from milabench_ng.fence.kernel.mounts import CgroupMount, find, parse_mountinfo
from milabench_ng.fence.kernel.readings import host_text, refusals
from milabench_ng.fence.runs import RunGroups
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.records.isolation import GroupsBy, IoMethod, MemoryLimit, Share, Tier, Usage

NAME = "cgroup1"
WARM_WORKERS = True
GROUPS_BY: GroupsBy = "mnb"
IO_METHOD: IoMethod | None = "blkio.throttle"


def tier(capabilities: Capabilities) -> Tier | None:
    """The tier that this back end can offer here; None for nothing."""
    held = capabilities.mode in ("v1", "hybrid") and capabilities.tier in ("full", "partial")
    return capabilities.tier if held else None


def bounds(capabilities: Capabilities) -> Bounds:
    """The bounds that the groups above set on the tenants."""
    cpus = mems = None
    limits: tuple[MemoryLimit, ...] = ()
    if capabilities.ok("cpuset"):
        cpuset = Cpuset1(capabilities.controllers["cpuset"].parent)
        cpus, mems = cpuset.effective_cpus, cpuset.effective_mems
    if capabilities.ok("memory"):
        limits = memory_limits(Path(capabilities.controllers["memory"].parent))
    return least_memory(cpus, mems, limits)


def group_names(mounts: Iterable[CgroupMount], directories: Mapping[str, Path]) -> dict[str, str]:
    """The names in /proc of the groups in ``directories``, by controller (``unified`` is v2's).

    Controllers mounted together (systemd: ``cpu,cpuacct``) are entered together, so all of them are named. Pure.
    """
    mounts, names = tuple(mounts), dict[str, str]()
    for controller, directory in directories.items():
        mount = find(mounts, "" if controller == "unified" else controller)
        if mount:
            names |= dict.fromkeys(mount.controllers or ("",), mount.group(directory))
    return names


class Cgroup1Group(KernelGroup):
    """One tenant's groups; `directories` by controller (`unified` is v2's), `groups` their names in /proc."""

    def __init__(
        self,
        name: str,
        share: Share,
        directories: Mapping[str, Path],
        groups: Mapping[str, str],
        shm: bool,
        cache: CacheGroup | None = None,
    ) -> None:
        self._by_controller = directories
        self._counters = Counters1(directories)
        super().__init__(name, share, directories.values(), groups, self._counters, shm, cache)
        with refusals(f"set the limits of {name}"):
            self._limit()

    @property
    def files(self) -> CounterFiles:
        memory, cpuacct = self._by_controller.get("memory"), self._by_controller.get("cpuacct")
        return CounterFiles(
            memory_stat=str(memory / "memory.stat") if memory else None,
            memory_current=str(memory / "memory.usage_in_bytes") if memory else None,
            cpu_usage=str(cpuacct / "cpuacct.usage") if cpuacct else None,
        )

    def _limit(self) -> None:
        share, kernel = self.share, self._counters
        if kernel.cpuset:
            kernel.cpuset.mems = share.mems
            kernel.cpuset.cpus = share.cpus
        if kernel.memory:
            kernel.memory.limit = share.memory_bytes  # first this, then memsw, which must not be below it
            if kernel.memory.has("memory.memsw.limit_in_bytes"):
                kernel.memory.memsw_limit = share.memory_bytes
            kernel.memory.swappiness = 0
        if kernel.pids:
            kernel.pids.max = share.pids
        for limit in share.io if kernel.blkio else ():
            assert kernel.blkio
            kernel.blkio.read_bps = ((limit.device, str(limit.read_bytes_per_s or 0)),)  # 0 is no limit
            kernel.blkio.write_bps = ((limit.device, str(limit.write_bytes_per_s or 0)),)

    def watch(self) -> Usage:
        usage = super().watch()
        if self._counters.out_of_memory():
            self.kill()
        return usage


class Cgroup1Fence:
    """The run's group in every required hierarchy."""

    backend = NAME
    groups_by = GROUPS_BY

    def __init__(self, capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> None:
        self.tier = capabilities.tier
        self.mode = capabilities.mode
        self.kernel = capabilities.kernel
        self.notes = capabilities.messages
        self._shm = shm
        self._parents = {name: c.parent for name, c in capabilities.controllers.items() if c.ok}
        if capabilities.unified:
            self._parents["unified"] = capabilities.unified
        self.parent = self._parents["memory"] if "memory" in self._parents else self._parents["cpuset"]
        self._cpuset = self._parents.get("cpuset", "")
        self._run = RunGroups(capabilities.parents, run_id, holds, self._prepare)
        self._mounts = parse_mountinfo(host_text("self/mountinfo"))

    def create(self, name: str, share: Share) -> Cgroup1Group:
        directories = {controller: self._run.directories[p] / name for controller, p in self._parents.items()}
        with refusals(f"make the group of {name}"):
            for directory in dict.fromkeys(directories.values()):
                directory.mkdir()
        groups = group_names(self._mounts, directories)
        return Cgroup1Group(name, share, directories, groups, self._shm, make_cache_group(self._run, name, share))

    def close(self) -> tuple[str, ...]:
        return self._run.close()

    def _prepare(self, directory: Path) -> None:
        """Give a new cpuset what its parent has: it is empty, and groups below it could get nothing."""
        if self._cpuset and directory.is_relative_to(self._cpuset):
            parent, own = Cpuset1(directory.parent), Cpuset1(directory)
            own.cpus, own.mems = parent.effective_cpus, parent.effective_mems


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> Cgroup1Fence:
    """Open the fence of one run; `holds` describes what it uses; `shm`: whether tenants can have their own /dev/shm."""
    return Cgroup1Fence(capabilities, run_id, holds, shm)
