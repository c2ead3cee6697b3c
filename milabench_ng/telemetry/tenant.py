"""Reads the tenants' memory and CPU time from cgroup v1 or v2 files.

Documentation: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel. Pinned CUDA buffers and
``/dev/shm`` count as shmem, which is part of file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milabench_ng.node.conditions import kernel_table
from milabench_ng.node.pci_gpus import kernel_text
from milabench_ng.telemetry.messages import SourceName, Watch
from milabench_ng.units import MIB

# Name of a value, and of its line in v2's and in v1's memory.stat. The v1 lines without "total" exclude the groups
# below.
_MEMORY_LINES = (
    ("anon_mib", "anon", "total_rss"),
    ("shmem_mib", "shmem", "total_shmem"),
    ("file_mib", "file", "total_cache"),
)


class TenantSource:
    """The watched cgroups."""

    name: SourceName = "tenant"
    values = (*(name for name, _, _ in _MEMORY_LINES), "current_mib", "cpu_s")
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._watched: dict[str, Watch] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The watched tenants."""
        return tuple(self._watched)

    def watch(self, order: Watch) -> None:
        """Read this tenant from now on."""
        self._watched[order.key] = order

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The values of every tenant whose group exists."""
        for key, order in self._watched.items():
            values = read_tenant(order)
            if values:
                yield key, values


def read_tenant(order: Watch) -> dict[str, float]:
    """The tenant's memory in MiB and CPU time in seconds since its group was made, from its files."""
    stat = kernel_table(Path(order.memory_stat)) if order.memory_stat else {}
    values = {name: _either(stat, v1, v2) / MIB for name, v2, v1 in _MEMORY_LINES if v1 in stat or v2 in stat}
    current = kernel_text(Path(order.memory_current)) if order.memory_current else None
    values |= {"current_mib": int(current) / MIB} if current else {}
    seconds = _cpu_seconds(Path(order.cpu_usage)) if order.cpu_usage else None
    return values if seconds is None else {**values, "cpu_s": seconds}


def _either(stat: dict[str, int], v1: str, v2: str) -> int:
    """A v1 file has both lines; the one with ``total`` counts."""
    return stat[v1] if v1 in stat else stat[v2]


def _cpu_seconds(path: Path) -> float | None:
    """v2's ``cpu.stat`` counts microseconds in a table, v1's ``cpuacct.usage`` is one number of nanoseconds."""
    text = kernel_text(path)
    if not text:
        return None
    if text.isdecimal():
        return int(text) / 1e9
    microseconds = kernel_table(path).get("usage_usec")
    return None if microseconds is None else microseconds / 1e6
