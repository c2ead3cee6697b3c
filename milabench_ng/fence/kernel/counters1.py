"""Reads a tenant's v1 groups: limits, usage, and events that should not happen.

Documentation/admin-guide/cgroup-v1/memory.rst, cpusets.rst, blkio-controller.rst, cpuacct.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from milabench_ng.fence.kernel.cgroupfs import Blkio1, Cpuacct1, Cpuset1, Group2, Memory1, Pids2
from milabench_ng.fence.kernel.readings import host_oom_kills, pressure_of
from milabench_ng.fence.kernel.watched import WatchedGroup
from milabench_ng.node.held_file import held_if_there, number_of
from milabench_ng.records.isolation import Effective, GroupEvents, IoLimit, MemoryLimit, Usage


class Counters1:
    """The files of one tenant's groups; `directories` by controller (`unified` is v2's)."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = directories
        self.cpuset = Cpuset1(directories["cpuset"]) if "cpuset" in directories else None
        self.memory = Memory1(directories["memory"]) if "memory" in directories else None
        self.pids = Pids2(directories["pids"]) if "pids" in directories else None
        self.blkio = Blkio1(directories["blkio"]) if "blkio" in directories else None
        self._cpuacct = Cpuacct1(directories["cpuacct"]) if "cpuacct" in directories else None
        self._unified = Group2(directories["unified"]) if "unified" in directories else None
        self._watched = self._to_watch()
        self._oom_control = held_if_there(directories["memory"] / "memory.oom_control") if self.memory else None

    def limits(self) -> Effective:
        """The limits as the kernel reports them."""
        cpuset, memory = self.cpuset, self.memory
        limit = memory.limit if memory else None
        memsw = memory.memsw_limit if memory and memory.has("memory.memsw.limit_in_bytes") else None
        return Effective(
            cpus=cpuset.effective_cpus if cpuset else None,
            mems=cpuset.effective_mems if cpuset else None,
            memory_bytes=limit,
            swap_bytes=memsw - limit if memsw is not None and limit is not None else None,
            oom_group=False if memory else None,
            pids=self.pids.max if self.pids else None,
            io=_io_limits(self.blkio) if self.blkio else (),
            ancestors=memory_limits(self._directories["memory"].parent) if memory else (),
        )

    def events(self) -> GroupEvents:
        """Events of the groups themselves: v1 does not propagate counters upwards."""
        memory = self.memory.oom_control if self.memory else {}
        return GroupEvents(
            oom_kill=memory.get("oom_kill", 0),
            pids_max=self.pids.events.get("max") if self.pids and self.pids.has("pids.events") else None,
            host_oom_kill=None if "oom_kill" in memory else host_oom_kills(),
        )

    def watched(self) -> Usage:
        """The part of `usage` that must be read several times a second, from files that stay open."""
        return self._watched.read()

    def close(self) -> None:
        """Close the files that stay open."""
        self._watched.close()
        if self._oom_control is not None:
            self._oom_control.close()

    def out_of_memory(self) -> bool:
        """Whether a process has been killed for memory, as in `events`, from a file that stays open."""
        return bool(self._oom_control and number_of(self._oom_control.read(), b"oom_kill"))

    def usage(self) -> Usage:
        """Usage, including all groups below."""
        stat = self.memory.stat if self.memory else {}
        shmem, cache = stat.get("total_shmem"), stat.get("total_cache")
        read, written = _io_bytes(self.blkio) if self.blkio else (None, None)
        return Usage(
            cpu_usec=self._cpu_usec(),
            memory_bytes=self.memory.usage if self.memory else None,
            memory_peak_bytes=self.memory.max_usage if self.memory else None,
            anon_bytes=stat.get("total_rss"),
            shmem_bytes=shmem,
            page_cache_bytes=cache - (shmem or 0) if cache is not None else None,
            io_read_bytes=read,
            io_write_bytes=written,
            pids_peak=self._pids_peak(),
            pressure=pressure_of(self._unified) if self._unified else {},
        )

    def _to_watch(self) -> WatchedGroup:
        memory, pids = self._directories.get("memory"), self._directories.get("pids")
        return WatchedGroup(
            lines=(b"total_rss", b"total_shmem", b"total_cache"),
            stat=memory / "memory.stat" if memory else None,
            memory=None,  # v1 has always kept its maximum
            pids=pids / "pids.current" if pids and self.pids and not self.pids.has("pids.peak") else None,
        )

    def _cpu_usec(self) -> int | None:
        if self._unified:
            return self._unified.cpu.stat.get("usage_usec")
        return self._cpuacct.usage // 1000 if self._cpuacct else None

    def _pids_peak(self) -> int | None:
        if self.pids is None:
            return None
        return self.pids.peak if self.pids.has("pids.peak") else self.pids.current


def memory_limits(directory: Path) -> tuple[MemoryLimit, ...]:
    """The limits of this group and all above it, nearest first."""
    found = []
    while (directory / "memory.limit_in_bytes").exists():
        found.append(MemoryLimit(str(directory), Memory1(directory).limit))
        directory = directory.parent
    return tuple(found)


def _io_limits(blkio: Blkio1) -> tuple[IoLimit, ...]:
    read = {device: int(rate) for device, rate in blkio.read_bps}
    write = {device: int(rate) for device, rate in blkio.write_bps}
    return tuple(IoLimit(device, read.get(device), write.get(device)) for device in sorted({*read, *write}))


def _io_bytes(blkio: Blkio1) -> tuple[int | None, int | None]:
    """Bytes read and written, from lines `8:0 Read 4096` and a total at the end.

    None without such a line: the kernel counts on a disk only after it was told to throttle something there.
    """
    rows = [row for row in blkio.io_service_bytes if len(row) == 3]
    if not rows:
        return None, None
    read, written = (sum(int(size) for _, kind, size in rows if kind == wanted) for wanted in ("Read", "Write"))
    return read, written
