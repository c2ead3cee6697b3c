"""Back end `cgroup2`: cpuset, memory without swap, pids and I/O on the unified hierarchy.

Documentation/admin-guide/cgroup-v2.rst. Works as root and below a group that was delegated to the user.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from milabench_ng.cgroupfs import Group2, Ids
from milabench_ng.fence import evidence, guardian
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Entry
from milabench_ng.fence.mounts import find, parse_mountinfo
from milabench_ng.fence.occupants import LEAF, evacuate
from milabench_ng.fence.procview import host_oom_kills, read_process
from milabench_ng.fence.readings import host_text, io_bytes, pressure_of, refusals
from milabench_ng.fence.runs import RunGroups
from milabench_ng.fence.shares import Bounds
from milabench_ng.records.isolation import Effective, GroupEvents, IoLimit, MemoryLimit, ProcView, Share, Tier, Usage

NAME = "cgroup2"
OOM_SCORE_ADJ = 500
# Not cpu: disjoint cpusets need no weights, and cpu.stat is there without it.
_CONTROLLERS = frozenset({"cpuset", "memory", "pids", "io"})


def tier(capabilities: Capabilities) -> Tier | None:
    """What this back end can offer here, None for nothing."""
    held = capabilities.mode == "v2" and capabilities.tier in ("full", "partial")
    return capabilities.tier if held else None


def bounds(capabilities: Capabilities) -> Bounds:
    """What the groups above the tenants leave to them."""
    parent = Group2(capabilities.parents[0])
    cpuset = parent.cpuset
    cpus, mems = (cpuset.cpus_effective, cpuset.mems_effective) if cpuset.has("cpuset.cpus.effective") else (None, None)
    return least_memory(cpus, mems, memory_limits(parent.directory))


class Cgroup2Group:
    """One tenant's group."""

    def __init__(self, name: str, share: Share, node: Group2, group: str, controllers: frozenset[str], shm: bool):
        self.name = name
        self.share = share
        self._node = node
        self._group = group
        self._controllers = controllers
        self._shm = shm
        self._last: Usage | None = None
        self._at_kill: Effective | None = None
        with refusals(f"set the limits of {name}"):
            self._limit()

    @property
    def entry(self) -> Entry:
        procs = (str(self._node.directory / "cgroup.procs"),)
        return Entry(procs, self.share.cpus, OOM_SCORE_ADJ, self.share.memory_bytes if self._shm else None)

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

    def verify(self, pid: int) -> tuple[Effective, ProcView]:
        effective, proc = self.effective(), read_process(pid)
        evidence.check(self.name, self.share, effective, proc, {"": self._group})
        return effective, proc

    def effective(self) -> Effective:
        return self._at_kill or self._limits()

    def _limits(self) -> Effective:
        node = self._node
        held = self._controllers.__contains__
        return Effective(
            cpus=node.cpuset.cpus_effective if held("cpuset") else None,
            mems=node.cpuset.mems_effective if held("cpuset") else None,
            memory_bytes=node.memory.max if held("memory") else None,
            swap_bytes=node.memory.swap_max if node.memory.has("memory.swap.max") else None,
            oom_group=node.memory.oom_group if held("memory") else None,
            pids=node.pids.max if held("pids") else None,
            io=_io_limits(node) if held("io") else (),
            ancestors=memory_limits(node.directory.parent),
        )

    def events(self) -> GroupEvents:
        memory = self._node.memory.events if "memory" in self._controllers else {}
        return GroupEvents(
            oom_kill=memory.get("oom_kill", 0),
            oom=memory.get("oom"),
            oom_group_kill=memory.get("oom_group_kill"),
            pids_max=self._node.pids.events.get("max") if "pids" in self._controllers else None,
            host_oom_kill=host_oom_kills(host_text("vmstat")),
        )

    def usage(self) -> Usage:
        self._last = evidence.with_maxima(self._last, self._read())
        return self._last

    def watch(self) -> Usage:
        return self.usage()

    def _read(self) -> Usage:
        node = self._node
        held = self._controllers.__contains__
        stat = node.memory.stat if held("memory") else {}
        shmem = stat.get("shmem")
        cpu = node.cpu.stat
        read, written = io_bytes(node.io.stat) if held("io") else (None, None)
        return Usage(
            cpu_usec=cpu.get("usage_usec"),
            throttled_usec=cpu.get("throttled_usec"),
            memory_bytes=node.memory.current if held("memory") else None,
            memory_peak_bytes=node.memory.peak if node.memory.has("memory.peak") else None,
            anon_bytes=stat.get("anon"),
            shmem_bytes=shmem,
            page_cache_bytes=stat["file"] - (shmem or 0) if "file" in stat else None,
            io_read_bytes=read,
            io_write_bytes=written,
            pids_peak=self._pids_peak() if held("pids") else None,
            pressure=pressure_of(node),
        )

    def _pids_peak(self) -> int:
        return self._node.pids.peak if self._node.pids.has("pids.peak") else self._node.pids.current

    def pids(self) -> tuple[int, ...]:
        return tuple(guardian.processes(str(self._node.directory)))

    def kill(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # removed already
            self._at_kill = self._at_kill or self._limits()
        guardian.kill([str(self._node.directory)])

    def remove(self, patience_s: float = 2.0) -> bool:
        return guardian.sweep([str(self._node.directory)], patience_s)[2]


class Cgroup2Fence:
    """The run's group below the root of the hierarchy, or below the group that was delegated."""

    backend = NAME

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
        self._node = Group2(self._run.directories[self.parent])
        mount = find(parse_mountinfo(host_text("self/mountinfo")), "")
        self._group = mount.group(self._node.directory) if mount else ""

    def create(self, name: str, share: Share) -> Cgroup2Group:
        with refusals(f"make the group of {name}"):
            node = self._node.create_cgroup(name)
        return Cgroup2Group(name, share, node, f"{self._group}/{name}", self._controllers, self._shm)

    def close(self) -> None:
        self._run.close()
        with contextlib.suppress(OSError):  # somebody else uses the controllers below the parent by now
            self._top.disable(self._enabled)
            leaf = self._top.child(LEAF)
            for pid in leaf.core.procs:
                self._top.core.procs = (pid,)
            leaf.directory.rmdir()

    def _enable_top(self) -> tuple[str, ...]:
        """Everywhere but at the root of all, processes have to leave first: the kernel would allow cpuset and pids
        beside them, but then no process could enter a group below ("Threads" in cgroup-v2.rst, `domain invalid`)."""
        if self._top.core.has("cgroup.type") and self._top.core.procs:
            evacuate(self._top)
        return self._top.enable(self._controllers)

    def _prepare(self, directory: Path) -> None:
        Group2(directory).enable(self._controllers)


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> Cgroup2Fence:
    """The fence of one run; `holds` says in words what it uses, `shm` whether tenants can have their own /dev/shm."""
    return Cgroup2Fence(capabilities, run_id, holds, shm)


def memory_limits(directory: Path) -> tuple[MemoryLimit, ...]:
    """The limits of this group and of all above it, nearest first; the root of all has none."""
    found = []
    while (directory / "cgroup.procs").exists():
        node = Group2(directory)
        if node.memory.has("memory.max"):
            found.append(MemoryLimit(str(directory), node.memory.max))
        directory = directory.parent
    return tuple(found)


def least_memory(cpus: Ids | None, mems: Ids | None, limits: tuple[MemoryLimit, ...]) -> Bounds:
    """Bounds by the tightest of the limits."""
    tight = [limit for limit in limits if limit.memory_bytes is not None]
    least = min(tight, key=lambda limit: limit.memory_bytes or 0, default=None)
    return Bounds(cpus, mems, least.memory_bytes if least else None, least.group if least else "")


def _io_limits(node: Group2) -> tuple[IoLimit, ...]:
    def rate(text: str) -> int | None:
        return None if text == "max" else int(text)

    lines = node.io.max.items() if node.io.has("io.max") else ()
    return tuple(IoLimit(device, rate(pairs["rbps"]), rate(pairs["wbps"])) for device, pairs in lines)
