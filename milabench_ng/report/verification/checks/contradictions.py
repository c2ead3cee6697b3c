"""Small facts of one launch that cannot both be true: times before the start, waiting, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from milabench_ng.memory_classes import REACHES
from milabench_ng.node.gpus import Gpu
from milabench_ng.records.batch_search import SEARCH_PHASE
from milabench_ng.records.record import Mnb, Rank
from milabench_ng.report.baselines.peaks import peak
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.telemetry.messages import telemetry_key
from milabench_ng.units import GIB, format_bytes

_APART_S = 0.05
"""Between two clock readings that follow each other."""
_UNTOLD_S, _UNTOLD = 2.0, 0.1
"""Time and share of the start that no phase tells: honest ones leave 0.04 s."""
_FORCED = 1.01
"""The kernel charges what cannot fail even beyond a limit, and the peak follows it (mm/memcontrol.c, try_charge)."""
_BYTES = {"float64": 8, "complex64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
"""Of parameters; other types count as one byte."""
_MORE = 1.02
"""No GPU shows more memory than its name says."""
_WIDE = ("fp32", "tf32", "bf16")
"""Modes whose range is that of fp32: a loss or gradient that overflows there would have failed the launch."""
_BUSY_OR_WAITING = 0.2
"""Where a storage sets the pace, its GPU works or its loop waits: in honest launches for 0.6 of the window and more."""


def contradictions(evidence: Evidence) -> Iterator[str]:
    """Devices and launches with facts that cannot both be true."""
    yield from _other_sizes(evidence.manifest.inventory.gpus)
    memory = {gpu.uuid: gpu.memory_bytes for gpu in evidence.manifest.inventory.gpus}
    for kept in evidence.good:
        mnb = kept.record.mnb
        most = max((memory.get(one.uuid or "") or 0 for one in mnb.devices), default=0)
        found = (*_start(mnb), *_waits(mnb), *_device_memory(mnb, most), *_host_memory(mnb), *_training(mnb))
        yield from (f"{kept.name}: {why}" for why in found)


def _other_sizes(gpus: Iterable[Gpu]) -> Iterator[str]:
    """GPUs with another memory than their name has: the plan and options by memory class follow from it."""
    for gpu in gpus:
        known = None if gpu.mig else peak(gpu.name)
        if known is not None and gpu.memory_bytes is not None:
            part = gpu.memory_bytes / (known.size * GIB)
            if not REACHES <= part <= _MORE:
                has = format_bytes(gpu.memory_bytes)
                yield f"{gpu.uuid} ({gpu.name}) is said to have {has}, such a GPU has {known.size:g} GiB"


def _start(mnb: Mnb) -> Iterator[str]:
    """The time from request to ``ready`` against its phases and the first conditions."""
    ready_s, before = mnb.start_to_ready_s, mnb.conditions.get("before")
    if ready_s is None or mnb.start_s is None:
        return
    told = math.fsum(seconds for name, seconds in mnb.phases_s.items() if name != SEARCH_PHASE)
    if ready_s > told + _UNTOLD_S + _UNTOLD * ready_s:
        yield f"it was ready after {ready_s:.1f} s, its phases took {told:.1f} s"
    if len(mnb.ranks) == 1 and told > ready_s + _APART_S:
        yield f"its phases took {told:.2f} s, and it was ready after {ready_s:.2f} s"
    if before is not None and ready_s > mnb.start_s - before.time_s + _APART_S:
        yield f"it was ready after {ready_s:.2f} s, and began {mnb.start_s - before.time_s:.2f} s after its conditions"


def _waits(mnb: Mnb) -> Iterator[str]:
    """No batch comes in no time; and where a storage sets the pace, the GPU works or the loop waits."""
    for rank in mnb.ranks:
        if any(row.wait_s == 0 for row in rank.slices):
            yield f"rank {rank.rank} fetched batches without waiting for a nanosecond"
    shares = [share for rank in mnb.ranks if (share := _waiting(mnb, rank)) is not None]
    sources = [mnb.telemetry.get(telemetry_key("gpu", device.uuid or ""), {}) for device in mnb.devices]
    busy = [one["utilization_pct"]["mean"] / 100 for one in sources if "mean" in one.get("utilization_pct", {})]
    if mnb.bound == "io" and shares and busy and max(shares) + max(busy) < _BUSY_OR_WAITING:
        yield f"it waited for {max(shares):.0%} of the window, its GPU worked {max(busy):.0%}: the rest is nowhere"


def _waiting(mnb: Mnb, rank: Rank) -> float | None:
    """The share of the window that a rank with something made ahead spent waiting."""
    window = mnb.window
    rows = [row for row in rank.slices if window is not None and window.holds(row)]
    if not rows or any(row.backlog is None for row in rows):
        return None
    return math.fsum(row.wait_s for row in rows) / math.fsum(row.length_s for row in rows)


def _device_memory(mnb: Mnb, most: int) -> Iterator[str]:
    """The peak of the device's memory against the parameters that lay in it, and its size (0: not known)."""
    types = mnb.precision.dtypes if mnb.precision else {}
    least = sum(_BYTES.get(name, 1) * number for name, number in types.items()) / max(1, len(mnb.ranks))
    for rank in mnb.ranks:
        taken = rank.peak_device_bytes
        if taken is not None and taken < least:
            yield f"rank {rank.rank} took {taken} bytes of its device at most, its parameters {least:.0f}"
        elif taken is not None and 0 < most < taken and mnb.devices[0].kind != "cpu":
            yield f"rank {rank.rank} took {taken} bytes of its device, which has {most}"


def _host_memory(mnb: Mnb) -> Iterator[str]:
    """RAM that a tenant held against its limit, and the limit against what it was told."""
    for slot, share in mnb.isolation.items():
        limit, usage = share.requested.memory_bytes, share.usage
        peak = usage.memory_peak_bytes if usage else None
        if peak is not None and limit is not None and share.tier == "full" and peak > limit * _FORCED:
            yield f"device {slot}: it held {peak} bytes of RAM, its limit was {limit}"
        told = mnb.environment.get("MNB_RAM_BYTES")
        if len(mnb.isolation) == 1 and told is not None and limit is not None and told != str(limit):
            yield f"device {slot}: it was told of {told} bytes of RAM, its limit was {limit}"


def _training(mnb: Mnb) -> Iterator[str]:
    """Losses and gradients that no training has."""
    mode = mnb.precision.requested if mnb.precision else None
    for rank in mnb.ranks:
        followed = {"loss": rank.losses, "gradient norm": rank.gradient_norms}
        for what, values in followed.items():
            unknown = [step for step, value in values.items() if value is None]
            if mode in _WIDE and unknown:
                yield f"rank {rank.rank} has no {what} of step {unknown[0]}, and {mode} has room for it"
        if rank.gradient_norms.get("1") == 0:  # later ones may vanish, when everything is learnt
            yield f"rank {rank.rank} trains, and its first gradient is 0"
