"""The power of a launch's devices, and what the figure rests on. Pure.

If a GPU has an energy counter, its mean power is the counter's increase between the edges of the averaging window over
the time between them (in records of earlier versions, between the first and last samples inside). If it has none, or
if the power samples contradict it, the mean power is the mean of those samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import msgspec

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.bounds import Spread
from milabench_ng.model.stats import mean
from milabench_ng.model.units import counted
from milabench_ng.records.record import Mnb, SamplingSpan
from milabench_ng.telemetry.messages import telemetry_key

PowerBasis = Literal["energy counter", "samples", "counter and samples disagree", "few samples"]
"""What a power figure rests on, best first."""

_BEST_FIRST: tuple[PowerBasis, ...] = get_args(PowerBasis)
_DOUBTS: dict[PowerBasis, str] = {
    "counter and samples disagree": "rests on the samples, as counter and samples disagree",
    "few samples": "rests on few samples",
}
ENOUGH = 0.5
"""Share of the window that the counter must cover, and share of the window's samples that must be present."""
_LEAST_S = 1.0
"""Shortest span: the counter updates every 100 ms, so that shorter ones are too coarse."""

_LONGEST_S = 60.0
"""Longest plausible interval between two samples."""
_AGREEMENT = 0.2
"""How far the counter's power may be from the samples' mean, relative to the mean."""


class DevicePower(msgspec.Struct, frozen=True):
    """Mean power of one device of a launch."""

    watts: float
    basis: PowerBasis


def launch_power(mnb: Mnb) -> DevicePower | None:
    """The mean over the devices of a launch; None if one is unknown or shares its GPU."""
    # A MIG device shares its board's, and so do several tenants of one GPU.
    alone = [device.uuid or "" for device in mnb.devices if device.kind == "gpu"]
    uuids = alone if mnb.launch.slots is msgspec.UNSET else []
    seen = (mnb.telemetry.get(telemetry_key("gpu", uuid)) for uuid in uuids)
    known = [power for one in seen if one is not None and (power := _power(one, mnb.sampled)) is not None]
    if not known or len(known) < len(mnb.devices):
        return None
    return DevicePower(mean([power.watts for power in known]), max((one.basis for one in known), key=_BEST_FIRST.index))


def _power(seen: Mapping[str, Spread], sampled: SamplingSpan | None) -> DevicePower | None:
    if sampled is None:
        return None
    gauge = seen.get("power_w")
    watts = counted_w(seen.get("energy_j"), sampled)
    if gauge is None:
        return None if watts is None else DevicePower(watts, "energy counter")
    if watts is not None and abs(watts - gauge.mean) <= _AGREEMENT * gauge.mean:
        return DevicePower(watts, "energy counter")
    if watts is not None:
        return DevicePower(gauge.mean, "counter and samples disagree")
    enough = _is_sane(sampled) and gauge.n * sampled.interval_s >= ENOUGH * (sampled.end_s - sampled.start_s)
    return DevicePower(gauge.mean, "samples" if enough else "few samples")


def counted_w(counter: Spread | None, sampled: SamplingSpan) -> float | None:
    """Watts by an energy counter; None unless it ran for enough of the sampled time, and no longer."""
    if counter is None or counter.max <= counter.min or not _is_sane(sampled):
        return None
    length_s = sampled.end_s - sampled.start_s
    if not max(_LEAST_S, ENOUGH * length_s) <= counter.span_s <= length_s + sampled.interval_s:
        return None
    return (counter.max - counter.min) / counter.span_s


def _is_sane(sampled: SamplingSpan) -> bool:
    return sampled.end_s > sampled.start_s and 0 < sampled.interval_s <= _LONGEST_S


def power_doubts(rows: Mapping[str, TestSummary]) -> Iterator[str]:
    """Why the power of some tests is less reliable, in words."""
    known = [test for test, row in rows.items() if row.power_basis]
    counts = {test: (row.power_launches, row.n - row.failures) for test, row in rows.items()}
    told = {test: (count, good) for test, (count, good) in counts.items() if count is not None}
    count, good = (sum(each) for each in zip(*told.values(), strict=True)) if told else (0, 0)
    if 0 < count < good:
        lacking = ", ".join(test for test, (some, all_) in told.items() if some < all_)
        yield f"is known for {count} of {good} launches; missing for {lacking}"
    for basis, words in _DOUBTS.items():
        tests = [test for test in known if basis in rows[test].power_basis]
        if tests:
            yield f"{words}: {', '.join(tests) if len(tests) < len(known) else 'all tests'}"


def lost_samples(rows: Mapping[str, TestSummary]) -> Iterator[str]:
    """How much telemetry was lost, in words."""
    lost = [row.telemetry_dropped for row in rows.values() if row.telemetry_dropped]
    if lost:
        yield f"samples were lost in {len(lost)} of {counted(len(rows), 'test')}, up to {max(lost)} in a launch"
