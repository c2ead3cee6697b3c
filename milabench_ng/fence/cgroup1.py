"""Back end `cgroup1`: cpuset, memory with memsw, pids and blkio, each in its own v1 hierarchy.

Documentation/admin-guide/cgroup-v1/. On a hybrid node every tenant also has a group in the unified hierarchy, for
killing all at once and for pressure. v1 kills one process when memory runs out; `watch` kills the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from milabench_ng.cgroupfs import Blkio1, Cpuacct1, Cpuset1, Group1, Group2, Memory1, Pids2
from milabench_ng.fence import evidence, guardian
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.cgroup2 import OOM_SCORE_ADJ, least_memory
from milabench_ng.fence.interface import Entry
from milabench_ng.fence.mounts import find, parse_mountinfo
from milabench_ng.fence.procview import host_oom_kills, read_process
from milabench_ng.fence.readings import host_text, pressure_of, refusals
from milabench_ng.fence.runs import RunGroups
from milabench_ng.fence.shares import Bounds
from milabench_ng.records.isolation import Effective, GroupEvents, IoLimit, MemoryLimit, ProcView, Share, Tier, Usage

NAME = "cgroup1"


def tier(capabilities: Capabilities) -> Tier | None:
    """What this back end can offer here, None for nothing."""
    held = capabilities.mode in ("v1", "hybrid") and capabilities.tier in ("full", "partial")
    return capabilities.tier if held else None


def bounds(capabilities: Capabilities) -> Bounds:
    """What the groups above the tenants leave to them."""
    cpus = mems = None
    limits: tuple[MemoryLimit, ...] = ()
    if capabilities.ok("cpuset"):
        cpuset = Group1(capabilities.controllers["cpuset"].parent, Cpuset1).files
        cpus, mems = cpuset.effective_cpus, cpuset.effective_mems
    if capabilities.ok("memory"):
        limits = memory_limits(Path(capabilities.controllers["memory"].parent))
    return least_memory(cpus, mems, limits)


class Cgroup1Group:
    """One tenant's groups; `directories` by controller (`unified` is that of v2), `groups` their names in /proc."""

    def __init__(self, name: str, share: Share, directories: Mapping[str, Path], groups: Mapping[str, str], shm: bool):
        self.name = name
        self.share = share
        self._directories = directories
        self._groups = groups
        self._shm = shm
        self._last: Usage | None = None
        self._at_kill: Effective | None = None
        self._cpuset = Group1(directories["cpuset"], Cpuset1).files if "cpuset" in directories else None
        self._memory = Group1(directories["memory"], Memory1).files if "memory" in directories else None
        self._pids = Group1(directories["pids"], Pids2).files if "pids" in directories else None
        self._cpuacct = Group1(directories["cpuacct"], Cpuacct1).files if "cpuacct" in directories else None
        self._blkio = Group1(directories["blkio"], Blkio1).files if "blkio" in directories else None
        self._unified = Group2(directories["unified"]) if "unified" in directories else None
        with refusals(f"set the limits of {name}"):
            self._limit()

    @property
    def entry(self) -> Entry:
        procs = tuple(f"{directory}/cgroup.procs" for directory in self._unique())
        return Entry(procs, self.share.cpus, OOM_SCORE_ADJ, self.share.memory_bytes if self._shm else None)

    def _unique(self) -> tuple[str, ...]:
        """Controllers that are mounted together share a directory."""
        return tuple(dict.fromkeys(map(str, self._directories.values())))

    def _limit(self) -> None:
        share = self.share
        if self._cpuset:
            self._cpuset.mems = share.mems
            self._cpuset.cpus = share.cpus
        if self._memory:
            self._memory.limit = share.memory_bytes  # first this, then memsw, which may not be below it
            if self._memory.has("memory.memsw.limit_in_bytes"):
                self._memory.memsw_limit = share.memory_bytes
            self._memory.swappiness = 0
        if self._pids:
            self._pids.max = share.pids
        for limit in share.io if self._blkio else ():
            assert self._blkio
            self._blkio.read_bps = ((limit.device, str(limit.read_bytes_per_s or 0)),)  # 0 is no limit
            self._blkio.write_bps = ((limit.device, str(limit.write_bytes_per_s or 0)),)

    def verify(self, pid: int) -> tuple[Effective, ProcView]:
        effective, proc = self.effective(), read_process(pid)
        evidence.check(self.name, self.share, effective, proc, self._groups)
        return effective, proc

    def effective(self) -> Effective:
        return self._at_kill or self._limits()

    def _limits(self) -> Effective:
        cpuset, memory = self._cpuset, self._memory
        limit = memory.limit if memory else None
        memsw = memory.memsw_limit if memory and memory.has("memory.memsw.limit_in_bytes") else None
        return Effective(
            cpus=cpuset.effective_cpus if cpuset else None,
            mems=cpuset.effective_mems if cpuset else None,
            memory_bytes=limit,
            swap_bytes=memsw - limit if memsw is not None and limit is not None else None,
            oom_group=False if memory else None,
            pids=self._pids.max if self._pids else None,
            io=_io_limits(self._blkio) if self._blkio else (),
            ancestors=memory_limits(self._directories["memory"].parent) if memory else (),
        )

    def events(self) -> GroupEvents:
        return GroupEvents(
            oom_kill=self._memory.oom_control.get("oom_kill", 0) if self._memory else 0,
            pids_max=self._pids.events.get("max") if self._pids and self._pids.has("pids.events") else None,
            host_oom_kill=host_oom_kills(host_text("vmstat")),
        )

    def usage(self) -> Usage:
        self._last = evidence.with_maxima(self._last, self._read())
        return self._last

    def watch(self) -> Usage:
        usage = self.usage()
        if self._memory and self._memory.oom_control.get("oom_kill", 0):
            self.kill()
        return usage

    def _read(self) -> Usage:
        stat = self._memory.stat if self._memory else {}
        shmem, cache = stat.get("total_shmem"), stat.get("total_cache")
        read, written = _io_bytes(self._blkio) if self._blkio else (None, None)
        return Usage(
            cpu_usec=self._cpu_usec(),
            memory_bytes=self._memory.usage if self._memory else None,
            memory_peak_bytes=self._memory.max_usage if self._memory else None,
            anon_bytes=stat.get("total_rss"),
            shmem_bytes=shmem,
            page_cache_bytes=cache - (shmem or 0) if cache is not None else None,
            io_read_bytes=read,
            io_write_bytes=written,
            pids_peak=self._pids_peak(),
            pressure=pressure_of(self._unified) if self._unified else {},
        )

    def _cpu_usec(self) -> int | None:
        if self._unified:
            return self._unified.cpu.stat.get("usage_usec")
        return self._cpuacct.usage // 1000 if self._cpuacct else None

    def _pids_peak(self) -> int | None:
        if self._pids is None:
            return None
        return self._pids.peak if self._pids.has("pids.peak") else self._pids.current

    def pids(self) -> tuple[int, ...]:
        return tuple(sorted({pid for directory in self._unique() for pid in guardian.processes(directory)}))

    def kill(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # removed already
            self._at_kill = self._at_kill or self._limits()
        guardian.kill(self._unique())

    def remove(self, patience_s: float = 2.0) -> bool:
        return guardian.sweep(self._unique(), patience_s)[2]


class Cgroup1Fence:
    """The run's group in every hierarchy that is needed."""

    backend = NAME

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
        groups = {}
        for controller, directory in directories.items():
            key = "" if controller == "unified" else controller
            mount = find(self._mounts, key)
            if mount:
                groups[key] = mount.group(directory)
        return Cgroup1Group(name, share, directories, groups, self._shm)

    def close(self) -> None:
        self._run.close()

    def _prepare(self, directory: Path) -> None:
        """A new cpuset is empty, and nothing below it could be given anything: it gets what its parent has."""
        if self._cpuset and directory.is_relative_to(self._cpuset):
            parent, own = Group1(directory.parent, Cpuset1).files, Group1(directory, Cpuset1).files
            own.cpus, own.mems = parent.effective_cpus, parent.effective_mems


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> Cgroup1Fence:
    """The fence of one run; `holds` says in words what it uses, `shm` whether tenants can have their own /dev/shm."""
    return Cgroup1Fence(capabilities, run_id, holds, shm)


def memory_limits(directory: Path) -> tuple[MemoryLimit, ...]:
    """The limits of this group and of all above it, nearest first."""
    found = []
    while (directory / "memory.limit_in_bytes").exists():
        found.append(MemoryLimit(str(directory), Group1(directory, Memory1).files.limit))
        directory = directory.parent
    return tuple(found)


def _io_limits(blkio: Blkio1) -> tuple[IoLimit, ...]:
    read = {device: int(rate) for device, rate in blkio.read_bps}
    write = {device: int(rate) for device, rate in blkio.write_bps}
    return tuple(IoLimit(device, read.get(device), write.get(device)) for device in sorted({*read, *write}))


def _io_bytes(blkio: Blkio1) -> tuple[int, int]:
    """Lines `8:0 Read 4096`, and a total at the end."""
    rows = [row for row in blkio.io_service_bytes if len(row) == 3]
    read, written = (sum(int(size) for _, kind, size in rows if kind == wanted) for wanted in ("Read", "Write"))
    return read, written
