"""Reads the host's CPU, memory and disk load through psutil."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import psutil

from milabench_ng.node.conditions import cpu_seconds
from milabench_ng.telemetry.messages import HOST_KEY, SourceName
from milabench_ng.units import MIB


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since boot. Rates are differences of two of these."""

    time_s: float
    cpu_s: tuple[float, float, float]
    """Busy, steal and total time, summed over CPUs."""
    disk_bytes: tuple[int, int]
    """Bytes read and written, over all whole disks."""


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

    def __init__(self) -> None:
        self._disks = whole_disks()
        self._before = read_counters(self._disks)

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """One set of values, without rates if no time has passed."""
        now = read_counters(self._disks)
        values = rates(self._before, now)
        self._before = now
        values |= {
            "load_1min": round(os.getloadavg()[0], 2),
            "memory_available_mib": psutil.virtual_memory().available / MIB,
        }
        yield HOST_KEY, values


def rates(before: Counters, now: Counters) -> dict[str, float]:
    """Percentages of all CPUs and disk rates between two readings."""
    seconds = now.time_s - before.time_s
    values: dict[str, float] = {}
    busy, steal, total = (late - early for early, late in zip(before.cpu_s, now.cpu_s, strict=True))
    # The kernel counts ticks of 10 ms: two reads within one tick have no time between them.
    values |= {"cpu_busy_pct": 100 * busy / total, "cpu_steal_pct": 100 * steal / total} if total > 0 else {}
    if seconds > 0:
        read, written = (late - early for early, late in zip(before.disk_bytes, now.disk_bytes, strict=True))
        values |= {"disk_read_mib_per_s": read / seconds / MIB, "disk_write_mib_per_s": written / seconds / MIB}
    return values


def read_counters(disks: Collection[str]) -> Counters:
    """The counters now, of these disks."""
    return Counters(time_s=time.monotonic(), cpu_s=cpu_seconds(), disk_bytes=_disk_bytes(disks))


def whole_disks(sysfs: Path = Path("/sys")) -> frozenset[str]:
    """Names of the disks with hardware behind them, which have a ``device`` link in sysfs.

    Others count the same bytes twice (partitions, devices made of others) or are not disks (devices made of memory).
    """
    return frozenset(path.parent.name for path in sysfs.glob("block/*/device"))


def _disk_bytes(disks: Collection[str]) -> tuple[int, int]:
    """Bytes read and written. Without disks, psutil is not called: some sandboxes have no such counters at all."""
    # nowrap off: its overflow check costs more than the read, and 64-bit counters do not overflow.
    counters = psutil.disk_io_counters(perdisk=True, nowrap=False) if disks else {}
    counted = [counters[name] for name in disks if name in counters]
    return sum(disk.read_bytes for disk in counted), sum(disk.write_bytes for disk in counted)
