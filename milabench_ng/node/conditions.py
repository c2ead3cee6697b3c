"""The conditions under which a batch ran: the node's settings and state, read before and after it.

``Settings`` stay the same unless someone changes them; ``GpuState`` and ``HostState`` change by themselves. Counters
are cumulative, so that the difference between the two edges is what happened in between. What a node does not support
is None, and ``unsupported`` names it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.node.cpu_totals import cpu_totals
from milabench_ng.node.drivers.opening import Drivers
from milabench_ng.node.edge import Edge
from milabench_ng.node.gpu_conditions import THROTTLE_REASONS, GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.kernel_files import kernel_table, kernel_text
from milabench_ng.node.kernel_mounts import covered

CLOCK_LIMIT_S = 2.0
"""By how much a wall clock may be set during a batch. Leap seconds, and the steps of NTP on a node that runs, are
smaller. Slewing moves both clocks alike."""


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the host."""

    kernel: str
    command_line: str | None
    mitigations: dict[str, str]
    """Mitigations by vulnerability, without those that do not affect this CPU."""
    governors: dict[str, int]
    """Number of CPU frequency policies by governor; empty if the kernel does not scale."""
    boost: bool | None
    smt: str | None
    transparent_hugepages: str | None
    numa_balancing: bool | None
    swap_total_bytes: int | None
    clock_source: str | None = None
    """What the kernel reads the time from; None in records of earlier versions."""
    covered: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What is mounted over files of the kernel (`node.kernel_mounts`); omitted where that is unknown."""


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host, and its counters since boot."""

    load: tuple[float, ...]
    """Load averages over 1, 5 and 15 minutes."""
    cpu_busy_s: float | None
    """Busy time summed over CPUs, without steal."""
    cpu_steal_s: float | None
    """Time in which the hypervisor ran other guests."""
    thermal_throttles: int | None
    """Sum over the core and package counts of all CPUs; only a change is meaningful."""
    memory_total_bytes: int | None
    """Grows on virtual machines that get memory as they touch it."""
    memory_available_bytes: int | None
    memory_cached_bytes: int | None
    swap_used_bytes: int | None
    pages_swapped_in: int | None
    pages_swapped_out: int | None
    oom_kills: int | None
    cpu_energy_j: float | msgspec.UnsetType | None = msgspec.UNSET
    """What the processor packages used since the session began, by the sampler; omitted if it cannot be read."""
    wall_energy_j: float | msgspec.UnsetType | None = msgspec.UNSET
    """What the whole node used since then, integrated from a meter of its power."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the node."""

    host: HostSettings
    driver: str | None
    gpus: dict[str, GpuSettings]
    """By UUID of the physical GPU."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The node at one edge of a batch."""

    time_s: float
    """Monotonic time."""
    raw_s: float | msgspec.UnsetType = msgspec.UNSET
    """The same clock as the hardware counts it, which nothing adjusts (CLOCK_MONOTONIC_RAW)."""
    utc: str
    host: HostState
    gpus: dict[str, GpuState]
    """By UUID of the physical GPU."""
    settings: Settings | None
    """None at the second edge means as at the first."""
    unsupported: tuple[str, ...] = ()
    """Values that some GPU does not support."""
    errors: dict[str, str] = {}
    """Reads that failed for other reasons, such as a lost GPU, by UUID and value."""


def read_conditions(
    drivers: Drivers, devices: Sequence[Gpu], own_pids: Collection[int] = (), root: Path = Path("/")
) -> Conditions:
    """Read the current conditions of the host and of the physical GPUs behind ``devices``.

    ``own_pids`` are processes that belong to the run; every other compute process on a GPU is reported as foreign.
    Makes no query that sleeps (PcieThroughput does); the energy counter is the slowest, with some milliseconds per GPU.
    """
    moment, raw, utc = time.monotonic(), time.clock_gettime(time.CLOCK_MONOTONIC_RAW), utc_iso(utc_now())
    boards = {gpu.board: (gpu, drivers.of(gpu).board(gpu.board)) for gpu in devices}
    states = {uuid: board.state(own_pids) for uuid, (_, board) in boards.items()}
    gpu_settings = {uuid: board.settings(gpu) for uuid, (gpu, board) in boards.items()}
    return Conditions(
        time_s=moment,
        raw_s=raw,
        utc=utc,
        host=_host_state(root),
        gpus=states,
        settings=Settings(
            host=_host_settings(root),
            driver=drivers.version_of(devices),
            gpus=gpu_settings,
        ),
        unsupported=tuple(sorted({name for _, board in boards.values() for name in board.unsupported})),
        errors={f"{uuid} {name}": text for uuid, (_, board) in boards.items() for name, text in board.errors.items()},
    )


def edges(before: Conditions, after: Conditions) -> dict[Edge, Conditions]:
    """Both edges as stored in a record: unchanged settings are not repeated at the second edge."""
    same = before.settings == after.settings
    return {"before": before, "after": msgspec.structs.replace(after, settings=None) if same else after}


def clock_set_by_s(before: Conditions, after: Conditions) -> float:
    """By how much the wall clock went on further than the monotonic one from one reading to another. Pure."""
    dated = datetime.fromisoformat(after.utc) - datetime.fromisoformat(before.utc)
    return dated.total_seconds() - (after.time_s - before.time_s)


def throttled_fraction(before: Conditions, after: Conditions) -> dict[str, dict[str, float]]:
    """Fraction of the time between the edges in which the clocks were held down, 0 to 1, by GPU and reason.

    A reason not read at both edges is left out. Thermal and brake reasons are faults of the node or its
    cooling; ``sw_power_cap`` is normal at full load.
    """
    elapsed_ns = (after.time_s - before.time_s) * 1e9
    fractions: dict[str, dict[str, float]] = {}
    for uuid in before.gpus.keys() & after.gpus.keys():
        first, last = before.gpus[uuid].throttled_ns, after.gpus[uuid].throttled_ns
        pairs = {reason: (first.get(reason), last.get(reason)) for reason in THROTTLE_REASONS}
        fractions[uuid] = {
            reason: (end - start) / elapsed_ns
            for reason, (start, end) in pairs.items()
            if start is not None and end is not None
        }
    return fractions


def cpu_seconds() -> tuple[float, float, float]:
    """Busy, steal and total seconds since boot, summed over CPUs."""
    import psutil  # what only reads records needs none

    return cpu_totals(*psutil.cpu_times()[:8])


def _host_settings(root: Path) -> HostSettings:
    cpus = root / "sys/devices/system/cpu"
    weaknesses = {path.name: kernel_text(path) or "unreadable" for path in sorted(cpus.glob("vulnerabilities/*"))}
    balancing = kernel_text(root / "proc/sys/kernel/numa_balancing")
    mounts = kernel_text(root / "proc/self/mountinfo")
    return HostSettings(
        kernel=kernel_text(root / "proc/sys/kernel/osrelease") or "unknown",
        command_line=kernel_text(root / "proc/cmdline"),
        mitigations={name: text for name, text in weaknesses.items() if text != "Not affected"},
        governors=dict(Counter(kernel_text(path) or "unreadable" for path in cpus.glob("cpufreq/*/scaling_governor"))),
        boost=_boost(cpus),
        smt=kernel_text(cpus / "smt/control"),
        transparent_hugepages=_chosen(kernel_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        numa_balancing=None if balancing is None else balancing != "0",
        swap_total_bytes=kernel_table(root / "proc/meminfo").get("SwapTotal"),
        clock_source=kernel_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        covered=msgspec.UNSET if mounts is None else covered(mounts),
    )


def _host_state(root: Path) -> HostState:
    memory, counters = kernel_table(root / "proc/meminfo"), kernel_table(root / "proc/vmstat")
    busy_s, steal_s, _ = cpu_seconds()
    swap = (memory.get("SwapTotal"), memory.get("SwapFree"))
    throttles = (root / "sys/devices/system/cpu").glob("cpu*/thermal_throttle/*_throttle_count")
    return HostState(
        load=tuple(round(load, 2) for load in os.getloadavg()),
        cpu_busy_s=round(busy_s, 2),
        cpu_steal_s=round(steal_s, 2),
        thermal_throttles=_sum(kernel_text(path) for path in throttles),
        memory_total_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        memory_cached_bytes=memory.get("Cached"),
        swap_used_bytes=None if swap[0] is None or swap[1] is None else swap[0] - swap[1],
        pages_swapped_in=counters.get("pswpin"),
        pages_swapped_out=counters.get("pswpout"),
        oom_kills=counters.get("oom_kill"),
    )


def _boost(cpus: Path) -> bool | None:
    """Whether boost is on: acpi-cpufreq and amd-pstate have ``boost``, intel_pstate has ``no_turbo``."""
    boost, no_turbo = kernel_text(cpus / "cpufreq/boost"), kernel_text(cpus / "intel_pstate/no_turbo")
    if boost is not None:
        return boost == "1"
    return None if no_turbo is None else no_turbo == "0"


def _chosen(choices: str | None) -> str | None:
    """The choice in brackets: ``always [madvise] never``."""
    return None if choices is None else choices.partition("[")[2].partition("]")[0] or choices


def _sum(texts: Iterable[str | None]) -> int | None:
    numbers = [int(text) for text in texts if text]
    return sum(numbers) if numbers else None
