"""The host: how busy CPUs, memory and disks are, from procfs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from milabench_ng.node.conditions import cpu_seconds, memory_bytes
from milabench_ng.node.pci_gpus import kernel_text
from milabench_ng.telemetry.messages import HOST_KEY, SourceName
from milabench_ng.units import MIB

_SECTOR_BYTES = 512


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What has been counted since boot. Rates are differences of two of these."""

    time_s: float
    cpu_s: tuple[float, float, float] | None
    """Busy, steal and total, summed over CPUs."""
    disk_bytes: tuple[int, int]
    """Read and written, over all whole disks."""


class HostSource:
    """CPU, memory and disks of the node, under one key. Rates cover the time since the previous read."""

    name: SourceName = "host"
    keys = (HOST_KEY,)
    values = (
        *("cpu_busy_pct", "cpu_steal_pct", "load_1min", "memory_available_mib"),
        *("disk_read_mib_per_s", "disk_write_mib_per_s"),
    )
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = read_counters(root)

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """One set of values; rates are left out where no time has passed."""
        now = read_counters(self._root)
        values = rates(self._before, now)
        self._before = now
        load = (kernel_text(self._root / "proc/loadavg") or "").split()
        available = memory_bytes(self._root).get("MemAvailable")
        values |= {"load_1min": float(load[0])} if load else {}
        values |= {"memory_available_mib": available / MIB} if available is not None else {}
        yield HOST_KEY, values


def rates(before: Counters, now: Counters) -> dict[str, float]:
    """Percentages of all CPUs and disk rates between two readings."""
    seconds = now.time_s - before.time_s
    values: dict[str, float] = {}
    if before.cpu_s and now.cpu_s:
        busy, steal, total = (late - early for early, late in zip(before.cpu_s, now.cpu_s, strict=True))
        # The kernel counts ticks of 10 ms: two reads within one tick have no time between them.
        values |= {"cpu_busy_pct": 100 * busy / total, "cpu_steal_pct": 100 * steal / total} if total > 0 else {}
    if seconds > 0:
        read, written = (late - early for early, late in zip(before.disk_bytes, now.disk_bytes, strict=True))
        values |= {"disk_read_mib_per_s": read / seconds / MIB, "disk_write_mib_per_s": written / seconds / MIB}
    return values


def read_counters(root: Path) -> Counters:
    """The counters now."""
    return Counters(time_s=time.monotonic(), cpu_s=cpu_seconds(root), disk_bytes=_disk_bytes(root))


def _disk_bytes(root: Path) -> tuple[int, int]:
    """Bytes read and written, from ``/proc/diskstats`` (Documentation/admin-guide/iostats.rst).

    Partitions, and devices that are made of others or of memory, would count the same bytes twice or are no disks: what
    has hardware behind it has a ``device`` link in sysfs.
    """
    disks = {path.parent.name for path in (root / "sys/block").glob("*/device")}
    rows = (line.split() for line in (kernel_text(root / "proc/diskstats") or "").splitlines())
    counts = [(int(row[5]), int(row[9])) for row in rows if len(row) > 9 and row[2] in disks]
    return _SECTOR_BYTES * sum(read for read, _ in counts), _SECTOR_BYTES * sum(written for _, written in counts)
