"""The evidence as tables: requested and effective shares, telemetry, the plan. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.model.grouping import grouped
from milabench_ng.model.plan import Launch, Plan
from milabench_ng.model.units import format_bytes
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.present.html.folder_details import FolderDetails, SampledQuantity
from milabench_ng.present.render.cells import Cell, number, whole
from milabench_ng.present.render.sections import Heading, Section
from milabench_ng.records.isolation import Isolation, cache_text
from milabench_ng.records.manifest import Manifest
from milabench_ng.telemetry.messages import telemetry_key

_UNITS = {
    "_mib_per_s": "MiB/s", "_mib": "MiB", "_pct": "%", "_mhz": "MHz", "_w": "W", "_c": "°C", "_j": "J", "_s": "s",
}  # fmt: skip
"""Units by the suffix of a quantity's name."""
_WORDS = {
    "utilization_pct": "GPU busy",
    "sm_clock_mhz": "clock of the GPU's cores",
    "memory_clock_mhz": "clock of the GPU's memory",
    "temperature_c": "temperature of the GPU",
    "memory_temperature_c": "temperature of the GPU's memory",
    "memory_used_mib": "GPU memory in use",
    "read_errors": "readings that failed",
    "reason_idle": "clocks low: idle",
    "reason_sw_power_cap": "clocks throttled: power limit",
    "reason_hw_slowdown": "clocks throttled: hardware",
    "reason_sw_thermal": "clocks throttled: temperature (driver)",
    "reason_hw_thermal": "clocks throttled: temperature (hardware)",
    "reason_hw_power_brake": "clocks throttled: power brake",
    "sw_power_cap_s": "time throttled by the power limit",
    "sw_thermal_s": "time throttled by temperature (driver)",
    "hw_thermal_s": "time throttled by temperature (hardware)",
    "hw_power_brake_s": "time throttled by the power brake",
    "cpu_busy_pct": "CPUs of the node busy",
    "cpu_steal_pct": "CPU time taken by the hypervisor",
    "disk_read_mib_per_s": "read from disks",
    "disk_write_mib_per_s": "written to disks",
    "load_1min": "load average of a minute",
    "memory_available_mib": "memory available on the node",
    "anon_mib": "memory of the tenant's processes",
    "current_mib": "all memory of the tenant",
    "file_mib": "page cache of the tenant",
    "shmem_mib": "shared memory of the tenant",
    "cpu_s": "CPU time of the tenant",
}
"""What the names of recorded quantities mean; others are told by their name."""


def fence_section(evidence: FolderDetails) -> Section:
    """One row per device and fence; with columns for parts of caches where a tenant asked for some."""
    divided = any(at.requested and at.requested.cache for fences in evidence.fences.values() for at in fences)
    rows: list[tuple[Cell, ...]] = []
    for device, fences in evidence.fences.items():
        alike = grouped(fences, lambda fence: (_asked(fence), _parts(fence))).items()
        rows += [
            (device, len(group), *asked, *_used(group), *((*parts, *_counted(group)) if divided else ()))
            for (asked, parts), group in alike
        ]
    return Section(
        key="isolation",
        title="isolation: requested and enforced limits",
        headings=(
            Heading("device"),
            Heading("launches", "", whole, True),
            Heading("tier", tone=lambda cell: "good" if cell == "full" else "bad"),
            Heading("isolation"),
            Heading("CPUs requested"),
            Heading("CPUs enforced"),
            Heading("memory requested"),
            Heading("memory enforced"),
            Heading("disjoint", tone=lambda cell: "bad" if cell == "no" else "plain"),
            Heading("unchanged at the end", tone=lambda cell: "bad" if cell == "no" else "plain"),
            Heading("largest use of memory"),
            Heading("out-of-memory kills", "", whole, True, lambda cell: "bad" if cell else "plain"),
            *(_OF_CACHES if divided else ()),
        ),
        rows=tuple(rows),
        notes=tuple(dict.fromkeys(note for fences in evidence.fences.values() for at in fences for note in at.notes)),
    )


_OF_CACHES = (
    Heading("cache requested"),
    Heading("caches enforced"),
    Heading("largest in caches at the end"),
    Heading("largest traffic with memory"),
)


def _parts(fence: Isolation) -> tuple[Cell, ...]:
    """Parts of last-level caches."""
    return tuple((cache_text(at.cache) or None) if at else None for at in (fence.requested, fence.effective))


def _counted(group: Sequence[Isolation]) -> tuple[Cell, ...]:
    """The most that resctrl counted."""
    used = [at.usage for at in group if at.usage]
    in_caches = [at.cache_bytes for at in used if at.cache_bytes is not msgspec.UNSET]
    traffic = [at.memory_traffic_bytes for at in used if at.memory_traffic_bytes is not msgspec.UNSET]
    return tuple(format_bytes(max(sizes)) if sizes else None for sizes in (in_caches, traffic))


def _asked(fence: Isolation) -> tuple[Cell, ...]:
    asked, held, later = fence.requested, fence.effective, fence.effective_end
    return (
        fence.tier,
        fence.backend,
        format_ids(asked.cpus) if asked else None,
        format_ids(held.cpus) if held and held.cpus is not None else None,
        format_bytes(asked.memory_bytes) if asked else None,
        format_bytes(held.memory_bytes) if held and held.memory_bytes is not None else None,
        _yes(fence.disjoint),
        None if held is None or later is None else _yes(held == later),
    )


def _used(group: Sequence[Isolation]) -> tuple[Cell, ...]:
    peaks = [at.usage.memory_peak_bytes for at in group if at.usage and at.usage.memory_peak_bytes is not None]
    kills = [
        at.events_after.oom_kill - (at.events_before.oom_kill if at.events_before else 0)
        for at in group
        if at.events_after
    ]
    return (format_bytes(max(peaks)) if peaks else None, sum(kills) if kills else None)


def telemetry_section(evidence: FolderDetails, label: str) -> Section | None:
    """Telemetry of one test, grouped by quantity across devices; None if nothing was sampled."""
    sampled = [at for at in evidence.sampled if at.label == label]
    if not sampled:
        return None
    devices = dict(_devices(evidence.manifests))
    quantities = _by_quantity(sampled)
    idle = [_in_words(name) for name, found in quantities.items() if not any(at.max or at.min for at in found)]
    rows = [
        (*_measured(at), devices.get(at.source, at.source.replace(":", " ")), at.launches, at.min, at.mean, at.max)
        for found in quantities.values()
        for at in found
        if _in_words(at.quantity) not in idle
    ]
    return Section(
        key=f"telemetry-{label}",
        title="telemetry of the averaging window",
        headings=(
            Heading("quantity"),
            Heading("in"),
            Heading("of"),
            Heading("launches", "", whole, True),
            Heading("least", "", number, True),
            Heading("mean", "", number, True),
            Heading("greatest", "", number, True),
        ),
        rows=tuple(rows),
        notes=(f"0 in every sample: {', '.join(idle)}",) if idle else (),
    )


def _by_quantity(sampled: Sequence[SampledQuantity]) -> dict[str, list[SampledQuantity]]:
    in_order = sorted(sampled, key=lambda at: (at.source.partition(":")[0], at.quantity))
    return grouped(in_order, lambda at: at.quantity)


def _measured(at: SampledQuantity) -> tuple[str, str]:
    """A quantity's name in words, and its unit, which is the suffix of the recorded name."""
    for end, unit in _UNITS.items():
        if at.quantity.endswith(end):
            return _in_words(at.quantity), f"{unit} a launch" if at.counter else unit
    return _in_words(at.quantity), "share of samples" if at.quantity.startswith("reason_") else ""


def _in_words(quantity: str) -> str:
    """The recorded name in words, without its unit."""
    if quantity in _WORDS:
        return _WORDS[quantity]
    end = next((end for end in _UNITS if quantity.endswith(end)), "")
    return quantity.removesuffix(end).replace("_", " ")


def _devices(manifests: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """Telemetry sources that are devices in the plan."""
    for manifest in manifests:
        for device in manifest.plan.devices:
            yield telemetry_key("gpu", str(device.uuid)), f"device {device.index}"


def plan_section(plan: Plan) -> Section:
    """The plan, one row per test and step."""
    count = Counter(_planned(launch) for launch in plan.launches)
    return Section(
        key="plan",
        title=f"plan: {len(plan.batches)} launch groups, {sum(count.values())} launches",
        headings=(
            Heading("test"),
            Heading("scheme"),
            Heading("workload"),
            Heading("devices a launch", "", whole, True),
            Heading("launches", "", whole, True),
            Heading("data scale", "", number, True),
            Heading("options"),
            Heading("changed on the command line"),
        ),
        rows=tuple((*row[:4], times, *row[4:]) for row, times in count.items()),
    )


def _planned(launch: Launch) -> tuple[Cell, ...]:
    return (
        launch.test,
        launch.scheme,
        launch.workload,
        len(launch.devices),
        launch.data_scale,
        ", ".join(f"{key} {value}" for key, value in launch.arguments.items()),
        ", ".join(launch.overrides) or None,
    )


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
