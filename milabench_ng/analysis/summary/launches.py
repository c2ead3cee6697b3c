"""Reduces a record to what the summary needs. Pure: rates are computed from the slices, never taken from the record's
own figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from milabench_ng.analysis.conditions.condition import Condition
from milabench_ng.analysis.launch.bottleneck import Bottleneck, cpu_use, io_stalled, measured_bottleneck
from milabench_ng.analysis.launch.host_paces import PaceSeen, launch_paces
from milabench_ng.analysis.launch.odd_slices import far_slice, stock
from milabench_ng.analysis.launch.steadiness import Shape, odd_shape
from milabench_ng.analysis.summary.power import DevicePower, launch_power
from milabench_ng.model.bounds import LARGEST, SMALLEST, Latencies
from milabench_ng.model.plan import Device
from milabench_ng.model.profile import Scheme
from milabench_ng.model.stats import mean
from milabench_ng.records.latency import merged
from milabench_ng.records.marks import Mark
from milabench_ng.records.prefetched import prefetched
from milabench_ng.records.reading import Read2020, ReadRecord
from milabench_ng.records.record import Mnb, Record
from milabench_ng.records.record_2020 import Record2020
from milabench_ng.records.window import (
    SliceRow,
    Window,
    item_latencies,
    items_per_step,
    latencies,
    notes_per_step,
    rate,
    recorded_window,
    settled_since,
    wait_share,
)
from milabench_ng.records.work import Work
from milabench_ng.telemetry.messages import telemetry_key

_TAIL = slice(-20, -2)


class LaunchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One launch, measured or failed: its record, and what is computed from it."""

    file: str
    test: str
    label: str
    job_id: str
    record: Record | None = None
    """None for one of 2020, and for a launch that left none that can be read."""
    session: int = 1
    """Which separate session of its folder it belongs to, see `separate_sessions`; whoever reads the folder knows."""
    work: Work
    devices: tuple[str, ...] = ()
    """Their slots, which are named after them; empty if a record of 2020 does not say."""
    hostname: str = ""
    steps: tuple[int, int] | None = None
    """Steps before the window and in it, of its first rank; None without a full window."""
    items_per_step: float | None = None
    """Mean over all steps of all ranks; None without a full window."""
    cause: str | None = None
    """Why it failed; None for a success."""
    detail: str = ""
    perf: float = math.nan
    """Items per second: mean over the ranks; NaN for a failed launch."""
    samples: tuple[float, ...] = ()
    """What enters the test's statistics: ``perf``, or every rank's rate as in 2020."""
    rank_rates: tuple[float, ...] = ()
    """Items per second of every rank, in the order of ``devices``."""
    shapes: tuple[Shape, ...] = ()
    """Oddities in the course of the rate, by rank."""
    program_s: float | None = None
    peak_memory_mib: float = 0.0
    wait_share: float | None = None
    latencies: Latencies = ()
    """Of the batches in the window, all ranks together; empty except for inference."""
    item_latencies: dict[str, Latencies] = {}
    """Of the items in the window, all ranks together, by what of them its workload times."""
    notes: dict[str, float] = {}
    """What its workload noted in the window: means per step, by name."""
    gpu_load: float | None = None
    """Share of the window in which a kernel ran on its GPUs, their mean; None if unknown."""
    bottleneck: Bottleneck | None = None
    """What set its pace, as measured; None if an option of its workload did, or if unknown, as without a GPU."""
    power: DevicePower | None = None
    """None if it is unknown or the device shares its GPU."""
    marks: tuple[Mark, ...] = ()
    """Those of its record, and those that follow from the slices, the manifest and the reference traces."""
    conditions: tuple[Condition, ...] = ()
    """Those that are known, within their limits and beyond."""
    reference: str = ""
    """Whether it was compared with reference traces, in words; empty if unknown (2020)."""

    @property
    def mnb(self) -> Mnb | None:
        """Our part of its record."""
        return None if self.record is None else self.record.mnb

    @property
    def run_id(self) -> str | None:
        """None without a record."""
        return None if self.mnb is None else self.mnb.run_id

    @property
    def started_utc(self) -> datetime | None:
        """None without a record."""
        return None if self.mnb is None else self.mnb.started_utc

    @property
    def hardware(self) -> tuple[Device, ...]:
        """Its devices as the record describes them."""
        return () if self.mnb is None else self.mnb.devices

    @property
    def paces(self) -> tuple[PaceSeen, ...]:
        """The host pace of each share."""
        return () if self.mnb is None else launch_paces(self.mnb)


def reduce_record(read: ReadRecord | Read2020) -> LaunchResult:
    return _ours(read) if isinstance(read, ReadRecord) else _of_2020(read)


def _ours(read: ReadRecord) -> LaunchResult:
    record, mnb = read.record, read.record.mnb
    slices = [rank.slices for rank in mnb.ranks]
    window = _window(mnb)
    rates = tuple(rate(rows, window) for rows in slices) if window else ()
    cause, detail = _failure(record, mean(rates))
    found = LaunchResult(
        file=read.file,
        test=mnb.launch.test,
        label=mnb.label,
        job_id=record.job_id,
        record=record,
        work=Work.of(mnb),
        devices=mnb.launch.slot_ids,
        hostname=record.hostname,
        cause=cause,
        detail=detail,
        rank_rates=rates,
        shapes=tuple(_shapes(mnb, window)) if window else (),
        program_s=_program_s(record),
        peak_memory_mib=_peak_memory(record),
        marks=mnb.marks,
    )
    if window is None or cause is not None:
        return found
    load, waits = _gpu_load(mnb), mean([wait_share(rows, window) for rows in slices])
    untold = prefetched(zip(mnb.launch.slot_ids, slices, strict=False), window)  # older versions did not make them
    return msgspec.structs.replace(
        found,
        steps=_steps(slices[0], window),
        items_per_step=items_per_step(slices),
        perf=mean(rates),
        samples=(mean(rates),),
        wait_share=waits,
        latencies=merged(latencies(rows, window) for rows in slices),
        item_latencies=item_latencies(slices, window),
        notes=notes_per_step(slices, window),
        gpu_load=load,
        bottleneck=_bottleneck(record, load, waits),
        power=launch_power(mnb),
        marks=(*mnb.marks, *(mark for mark in untold if mark not in mnb.marks)),
    )


def _window(mnb: Mnb) -> Window | None:
    if mnb.start_s is None or mnb.stop_s is None:
        return None
    return recorded_window([rank.slices for rank in mnb.ranks], mnb.stop_s, mnb.window_rule, mnb.start_s)


def _gpu_load(mnb: Mnb) -> float | None:
    """The mean over the devices of a launch; None without samples of each from inside the window."""
    seen = [mnb.telemetry.get(telemetry_key("gpu", device.uuid or "")) for device in mnb.devices]
    loads = [one["utilization_pct"].mean / 100 for one in seen if one and "utilization_pct" in one]
    return mean(loads) if mnb.sampled and loads and len(loads) == len(mnb.devices) else None


def _bottleneck(record: Record, load: float | None, waits: float) -> Bottleneck | None:
    """What set the pace, in a launch whose GPUs were so busy; None if an option did, or if that is unknown."""
    if load is None or record.mnb.paced_by:
        return None
    return measured_bottleneck(load, waits, cpu_use(record.mnb), io_stalled(record.mnb.isolation, _program_s(record)))


def _steps(rows: Sequence[SliceRow], window: Window) -> tuple[int, int]:
    """Steps of one rank before the window and in it; a slice across its beginning is in neither."""
    before = sum(row.steps for row in rows if row.end_s <= window.start_s)
    return before, sum(row.steps for row in rows if window.holds(row))


def _shapes(mnb: Mnb, window: Window) -> Iterator[Shape]:
    """The oddities of all ranks, each with its rank if there are several."""
    start_s = mnb.start_s or 0.0
    for number, rank in enumerate(mnb.ranks):
        rows = rank.slices
        begin = min(window.start_s, settled_since(rows, start_s, mnb.window_rule))
        seen = (
            odd_shape(rows, begin, window.start_s, window.end_s),
            far_slice(rows, window, start_s),
            stock([row for row in rows if window.holds(row)]),
        )
        for shape in filter(None, seen):
            yield shape if len(mnb.ranks) == 1 else Shape(shape.kind, f"rank {number}: {shape.detail}")


def _failure(record: Record, perf: float) -> tuple[str | None, str]:
    failure = record.mnb.failure
    if failure is not None:
        return failure.cause, failure.detail
    if any(rank.verified.wrong for rank in record.mnb.ranks if rank.verified):
        return "mismatch", "a result is not the one that it must be"
    if not record.success:
        return "exit", "the record says that the launch failed, but not why"
    bad = [name for name, value in record.metrics.items() if value is None]
    if bad:
        return "nan", f"metric {bad[0]} is not a number"
    if not math.isfinite(perf):
        return "short", "too few slices for the averaging window"
    if not _measurable(perf):
        return "nan", f"impossible rate: {perf:.3g} items/s"
    return None, ""


def _of_2020(read: Read2020) -> LaunchResult:
    view = read.record
    scheme = _scheme(view.job)
    samples = tuple(_tail_rate(timing.rates or ()) for name, timing in view.timings.items() if name.startswith("train"))
    cause, detail = _failure_2020(view, samples)
    visible = _visible(view.environ)
    return LaunchResult(
        file=read.file,
        test=view.name,
        label=scheme.label(view.name, view.device_count),
        job_id=view.job_id,
        work=Work(scheme=scheme),
        devices=tuple(visible),
        hostname=view.hostname or "",
        cause=cause,
        detail=detail,
        perf=mean(samples) if cause is None else math.nan,
        samples=samples if cause is None else (),
        rank_rates=samples if cause is None else (),
        program_s=_program_s(view),
        peak_memory_mib=_peak_2020(view, visible),
    )


def _failure_2020(view: Record2020, samples: Sequence[float]) -> tuple[str | None, str]:
    """As in 2020, except that a launch without a rate is a failure: it used to be a success that spoiled the mean."""
    if not view.success:
        return "exception", (view.error or "").strip().rpartition("\n")[2]
    bad = [name for name, value in view.metrics.items() if (isinstance(value, float) and math.isnan(value))]
    if bad:
        return "nan", f"metric {bad[0]} is not a number"
    if not samples or not all(math.isfinite(sample) for sample in samples):
        return "short", "too few slices to average"
    return None, ""


def _tail_rate(rates: Sequence[float | None]) -> float:
    """Mean of ``rates[-20:-2]``: at most 18 slices, without the last two; NaN if there are none or one is invalid."""
    return mean([value if value is not None and _measurable(value) else math.nan for value in rates[_TAIL]])


def _measurable(rate: float) -> bool:
    return rate == 0 or SMALLEST <= rate <= LARGEST


def _scheme(job: Mapping[str, Any] | None) -> Scheme:
    """The scheme of a record of 2020: a progression, or anything else."""
    scheme = (job or {}).get("partition_scheme")
    stated = scheme.get("type") if isinstance(scheme, dict) else None
    return Scheme.PROGRESSION if stated == Scheme.PROGRESSION else Scheme.PER_GPU


def _program_s(view: Record | Record2020) -> float | None:
    program = view.timings.get("program")
    return program.time if program else None


def _visible(environ: Mapping[str, Any]) -> list[str]:
    """The devices in ``CUDA_VISIBLE_DEVICES``."""
    text = environ.get("CUDA_VISIBLE_DEVICES")
    return [part.strip() for part in text.split(",") if part.strip()] if isinstance(text, str) else []


def _peak_memory(record: Record) -> float:
    """MiB on the busiest of the launch's devices (as in 2020); 0 without samples."""
    return max([0.0, *(gauges["memory"].max for gauges in record.gpu_monitor.values() if "memory" in gauges)])


def _peak_2020(view: Record2020, visible: Sequence[str]) -> float:
    """MiB on the launch's device, or on any of the node's for several devices; 0 without samples."""
    monitor = view.gpu_monitor or {}
    chosen = [monitor[visible[0]]] if len(visible) == 1 and visible[0] in monitor else list(monitor.values())
    return max([0.0, *(entry.memory.max for entry in chosen if entry.memory and entry.memory.max is not None)])
