"""Reads the tenants' memory and CPU time from cgroup v1 or v2 files.

Documentation: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel. Pinned CUDA buffers and
``/dev/shm`` count as shmem, which is part of file.
"""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.model.units import MIB
from milabench_ng.node.held_file import HeldFile, number_of, text_of
from milabench_ng.telemetry.messages import SourceName, Watch

# Name of a value, and of its line in v1's and in v2's memory.stat. A v1 file has both lines; those without "total"
# exclude the groups below.
_MEMORY_LINES = (
    ("anon_mib", (b"total_rss", b"anon")),
    ("shmem_mib", (b"total_shmem", b"shmem")),
    ("file_mib", (b"total_cache", b"file")),
)


class TenantSource:
    """The watched cgroups."""

    name: SourceName = "tenant"
    values = (*(name for name, _ in _MEMORY_LINES), "current_mib", "cpu_s")
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._watched: dict[str, TenantFiles] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._watched)

    def watch(self, order: Watch) -> None:
        """Read this tenant from now on."""
        self._watched[order.key] = TenantFiles(order)

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The values of every tenant whose group exists."""
        for key, files in self._watched.items():
            values = files.read()
            if values:
                yield key, values


class TenantFiles:
    """The files of one tenant's group."""

    def __init__(self, order: Watch) -> None:
        self._memory_stat = _held(order.memory_stat)
        self._memory_current = _held(order.memory_current)
        self._cpu_usage = _held(order.cpu_usage)

    def read(self) -> dict[str, float]:
        """The tenant's memory in MiB and CPU time in seconds since its group was made."""
        stat = text_of(self._memory_stat)
        memory = {name: _first_of(stat, lines) for name, lines in _MEMORY_LINES}
        memory["current_mib"] = _whole(text_of(self._memory_current))
        values = {name: size / MIB for name, size in memory.items() if size is not None}
        seconds = _cpu_seconds(text_of(self._cpu_usage))
        return values if seconds is None else {**values, "cpu_s": seconds}


def _held(path: str | None) -> HeldFile | None:
    return None if path is None else HeldFile(path)


def _first_of(table: bytes, names: tuple[bytes, ...]) -> int | None:
    return next((number for name in names if (number := number_of(table, name)) is not None), None)


def _whole(text: bytes) -> int | None:
    return int(text) if text else None


def _cpu_seconds(text: bytes) -> float | None:
    """v2's ``cpu.stat`` counts microseconds in a table, v1's ``cpuacct.usage`` is one number of nanoseconds."""
    if text[:1].isdigit():
        return int(text) / 1e9
    microseconds = number_of(text, b"usage_usec")
    return None if microseconds is None else microseconds / 1e6
