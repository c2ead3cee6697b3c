"""Reads the host's CPU, memory and disk load from procfs (proc(5)) and sysfs (Documentation/block/stat.rst).

Not through psutil, which opens and parses whole files: four times the time, twice a second, next to the tenants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from milabench_ng.model.units import KIB, MIB
from milabench_ng.node.cpu_totals import cpu_totals
from milabench_ng.node.held_file import HeldFile, number_of, text_of
from milabench_ng.telemetry.host_power import MeteredEnergy, Rapl, find_meter
from milabench_ng.telemetry.messages import HOST_KEY, SourceName

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SECTOR_BYTES = 512
"""Of these counters, whatever the disk's own sectors are."""


_ENERGIES = ("cpu_energy_j", "wall_w", "wall_energy_j")
"""Of the processor packages; at the wall, which only meters of power show."""


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
        *_ENERGIES,
    )
    notes: tuple[str, ...] = ()

    def __init__(self, procfs: Path = Path("/proc"), sysfs: Path = Path("/sys"), devices: Path = Path("/dev")) -> None:
        self._stat = HeldFile(procfs / "stat")
        self._meminfo = HeldFile(procfs / "meminfo")
        self._disks = tuple(HeldFile(disk / "stat") for disk in whole_disks(sysfs))
        self._rapl = Rapl(sysfs)
        meter = find_meter(sysfs, devices)
        self._wall = None if meter is None else MeteredEnergy(meter)
        self.unsupported = tuple(
            name for name, there in zip(_ENERGIES, (self._rapl.works, meter, meter), strict=True) if not there
        )
        self._before = self.counters()

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """One set of values, without rates if no time has passed."""
        now = self.counters()
        values = rates(self._before, now)
        self._before = now
        values["load_1min"] = round(os.getloadavg()[0], 2)
        available_kib = number_of(self._meminfo.read(), b"MemAvailable:")
        if available_kib is not None:
            values["memory_available_mib"] = available_kib * KIB / MIB
        yield HOST_KEY, values | self._energies()

    def _energies(self) -> dict[str, float]:
        """What the processors used since this began, and what the node draws and used, as far as they are metered."""
        cpu_j = self._rapl.joules()
        wall = self._wall.read(time.monotonic()) if self._wall else None
        known = zip(_ENERGIES, (cpu_j, *(wall or (None, None))), strict=True)
        return {name: value for name, value in known if value is not None}

    def counters(self) -> Counters:
        return Counters(
            time_s=time.monotonic(),
            cpu_s=cpu_seconds(self._stat.read()),
            disk_bytes=disk_bytes(filter(None, map(text_of, self._disks))),
        )


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


def cpu_seconds(stat: bytes) -> tuple[float, float, float]:
    """Busy, steal and total seconds since boot, summed over CPUs, from ``/proc/stat``."""
    return cpu_totals(*(int(ticks) / _TICKS_PER_S for ticks in stat.split(b"\n", 1)[0].split()[1:9]))


def disk_bytes(stats: Iterable[bytes]) -> tuple[int, int]:
    """Bytes read and written, over all disks with these ``stat`` files."""
    counted = [stat.split() for stat in stats]
    return sum(int(words[2]) for words in counted) * _SECTOR_BYTES, sum(
        int(words[6]) for words in counted
    ) * _SECTOR_BYTES


def whole_disks(sysfs: Path) -> tuple[Path, ...]:
    """The disks with hardware behind them, which have a ``device`` link in sysfs.

    Others count the same bytes twice (partitions, devices made of others) or are not disks (devices made of memory).
    """
    return tuple(path.parent for path in sorted(sysfs.glob("block/*/device")))
