"""Reads a tenant's v2 group: limits, usage, and events that should not happen.

Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.readings import host_oom_kills, io_bytes, pressure_of
from milabench_ng.fence.kernel.watched import WatchedGroup
from milabench_ng.records.isolation import Effective, GroupEvents, IoLimit, MemoryLimit, Usage


class Counters2:
    """The files of one tenant's group, for its `controllers`."""

    def __init__(self, node: Group2, controllers: Iterable[str]) -> None:
        self._node = node
        self._controllers = frozenset(controllers)
        self._watched = self._to_watch()

    def limits(self) -> Effective:
        """The limits as the kernel reports them."""
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
        """Events, including those of all groups below."""
        memory = self._node.memory.events if "memory" in self._controllers else {}
        return GroupEvents(
            oom_kill=memory.get("oom_kill", 0),
            oom=memory.get("oom"),
            oom_group_kill=memory.get("oom_group_kill"),
            pids_max=self._node.pids.events.get("max") if "pids" in self._controllers else None,
            host_oom_kill=None if "oom_kill" in memory else host_oom_kills(),
        )

    def watched(self) -> Usage:
        """The part of `usage` that must be read several times a second, from files that stay open."""
        return self._watched.read()

    def close(self) -> None:
        """Close the files that stay open."""
        self._watched.close()

    def usage(self) -> Usage:
        """Usage, including all groups below."""
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

    def _to_watch(self) -> WatchedGroup:
        node, held = self._node, self._controllers.__contains__
        return WatchedGroup(
            lines=(b"anon", b"shmem", b"file"),
            stat=node.directory / "memory.stat" if held("memory") else None,
            memory=node.directory / "memory.current" if held("memory") and not node.memory.has("memory.peak") else None,
            pids=node.directory / "pids.current" if held("pids") and not node.pids.has("pids.peak") else None,
        )

    def _pids_peak(self) -> int:
        return self._node.pids.peak if self._node.pids.has("pids.peak") else self._node.pids.current


def memory_limits(directory: Path) -> tuple[MemoryLimit, ...]:
    """The limits of this group and all above it, nearest first; the root has none."""
    found = []
    while (directory / "cgroup.procs").exists():
        node = Group2(directory)
        if node.memory.has("memory.max"):
            found.append(MemoryLimit(str(directory), node.memory.max))
        directory = directory.parent
    return tuple(found)


def _io_limits(node: Group2) -> tuple[IoLimit, ...]:
    def rate(text: str) -> int | None:
        return None if text == "max" else int(text)

    lines = node.io.max.items() if node.io.has("io.max") else ()
    return tuple(IoLimit(device, rate(pairs["rbps"]), rate(pairs["wbps"])) for device, pairs in lines)
