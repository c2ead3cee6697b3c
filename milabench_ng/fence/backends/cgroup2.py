"""Back end `cgroup2`: cpuset, memory without swap, pids and I/O on the unified hierarchy.

Documentation/admin-guide/cgroup-v2.rst. Works as root and below a group delegated to the user.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from milabench_ng.fence.backends.kernel_group import KernelGroup
from milabench_ng.fence.cache_groups import CacheGroup, make_cache_group
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import CounterFiles
from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.counters2 import Counters2, memory_limits
from milabench_ng.fence.kernel.mounts import find, parse_mountinfo
from milabench_ng.fence.kernel.occupants import LEAF, evacuate
from milabench_ng.fence.kernel.readings import host_text, refusals
from milabench_ng.fence.runs import RunGroups
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.node.cgroup_files import Ids
from milabench_ng.records.isolation import GroupsBy, IoMethod, MemoryLimit, Share, Tier

NAME = "cgroup2"
WARM_WORKERS = True
GROUPS_BY: GroupsBy = "mnb"
IO_METHOD: IoMethod | None = "io.max"
# Not cpu: disjoint cpusets need no weights, and cpu.stat exists without it.
_CONTROLLERS = frozenset({"cpuset", "memory", "pids", "io"})


def tier(capabilities: Capabilities) -> Tier | None:
    """The tier that this back end can offer here; None for nothing."""
    held = capabilities.mode == "v2" and capabilities.tier in ("full", "partial")
    return capabilities.tier if held else None


def bounds(capabilities: Capabilities) -> Bounds:
    """The bounds that the groups above set on the tenants."""
    parent = Group2(capabilities.parents[0])
    cpuset = parent.cpuset
    cpus, mems = (cpuset.cpus_effective, cpuset.mems_effective) if cpuset.has("cpuset.cpus.effective") else (None, None)
    return least_memory(cpus, mems, memory_limits(parent.directory))


class Cgroup2Group(KernelGroup):
    """One tenant's group; ``group`` is its name in /proc."""

    def __init__(
        self,
        name: str,
        share: Share,
        node: Group2,
        group: str,
        controllers: frozenset[str],
        shm: bool,
        cache: CacheGroup | None = None,
    ) -> None:
        super().__init__(name, share, [node.directory], {"": group}, Counters2(node, controllers), shm, cache)
        self._node = node
        self._controllers = controllers
        with refusals(f"set the limits of {name}"):
            self._limit()

    @property
    def files(self) -> CounterFiles:
        directory = self._node.directory
        return CounterFiles(*(str(directory / name) for name in ("memory.stat", "memory.current", "cpu.stat")))

    def _limit(self) -> None:
        node, share = self._node, self.share
        if "cpuset" in self._controllers:
            node.cpuset.mems = share.mems
            node.cpuset.cpus = share.cpus
        if "memory" in self._controllers:
            node.memory.max = share.memory_bytes
            if node.memory.has("memory.swap.max"):
                node.memory.swap_max = 0
            node.memory.oom_group = True
        if "pids" in self._controllers:
            node.pids.max = share.pids
        for limit in share.io if "io" in self._controllers else ():
            rates = {"rbps": limit.read_bytes_per_s, "wbps": limit.write_bytes_per_s}
            node.io.max = {limit.device: {key: "max" if rate is None else str(rate) for key, rate in rates.items()}}


class Cgroup2Fence:
    """The run's group below the root of the hierarchy, or below the delegated group."""

    backend = NAME
    groups_by = GROUPS_BY

    def __init__(self, capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> None:
        self.tier = capabilities.tier
        self.mode = capabilities.mode
        self.kernel = capabilities.kernel
        self.parent = capabilities.parents[0]
        self.notes = capabilities.messages
        self._shm = shm
        self._top = Group2(self.parent)
        self._controllers = _CONTROLLERS & {name for name, c in capabilities.controllers.items() if c.ok}
        with refusals(f"enable {' '.join(sorted(self._controllers))} in {self.parent}"):
            self._enabled = self._enable_top()
        self._run = RunGroups((self.parent,), run_id, holds, self._prepare)
        mount = find(parse_mountinfo(host_text("self/mountinfo")), "")
        self._group = mount.group(self._run.directories[self.parent]) if mount else ""

    def create(self, name: str, share: Share) -> Cgroup2Group:
        node = Group2(self._run.directories[self.parent] / name)
        with refusals(f"make the group of {name}"):
            node.directory.mkdir()
        cache = make_cache_group(self._run, name, share)
        return Cgroup2Group(name, share, node, f"{self._group}/{name}", self._controllers, self._shm, cache)

    def close(self) -> tuple[str, ...]:
        left = self._run.close()
        with contextlib.suppress(OSError):  # another process uses the controllers below the parent by now
            self._top.disable(self._enabled)
            leaf = Group2(self._top.directory / LEAF)
            for pid in leaf.core.procs:
                self._top.core.procs = (pid,)
            leaf.directory.rmdir()
        return left

    def _enable_top(self) -> tuple[str, ...]:
        """Enable controllers; except at the root, processes must leave first: the kernel would allow cpuset and pids
        alongside them, but no process could enter a group below ("Threads" in cgroup-v2.rst, `domain invalid`)."""
        if self._top.core.has("cgroup.type") and self._top.core.procs:
            evacuate(self._top)
        return self._top.enable(self._controllers)

    def _prepare(self, directory: Path) -> None:
        Group2(directory).enable(self._controllers)


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> Cgroup2Fence:
    """Open the fence of one run; `holds` describes what it uses; `shm`: whether tenants can have their own /dev/shm."""
    return Cgroup2Fence(capabilities, run_id, holds, shm)


def least_memory(cpus: Ids | None, mems: Ids | None, limits: tuple[MemoryLimit, ...]) -> Bounds:
    """The bounds that the tightest of the limits sets."""
    tight = [limit for limit in limits if limit.memory_bytes is not None]
    least = min(tight, key=lambda limit: limit.memory_bytes or 0, default=None)
    return Bounds(cpus, mems, least.memory_bytes if least else None, least.group if least else "")
