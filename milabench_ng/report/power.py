"""What the devices of a launch took, and what that rests on. Pure.

Where a GPU counts its energy, its mean power is what the counter gained between the first and the last sample inside
the averaging window, over the time between them. Where it does not, it is the mean of the samples of its power there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from milabench_ng.records.views import MnbView, SampledView, TelemetryView
from milabench_ng.report.summary import TestSummary
from milabench_ng.stats import mean
from milabench_ng.telemetry.messages import telemetry_key

Basis = Literal["energy counter", "samples", "few samples", "samples from start to stop"]
"""What a power rests on, the best first; the last is that of older records, whose ramp is in it."""

_BEST_FIRST: tuple[Basis, ...] = ("energy counter", "samples", "few samples", "samples from start to stop")
_DOUBTS: dict[Basis, str] = {
    "few samples": "rests on few samples",
    "samples from start to stop": "is that from start to stop, the ramp included",
}
ENOUGH = 0.5
"""Part of the window that must be between the edges of the counter, and of its samples that must be there."""
_LEAST_S = 1.0
"""The counter moves every 100 ms: over less it is too coarse."""


class Power(msgspec.Struct, frozen=True):
    """Mean power of one device of a launch."""

    watts: float
    basis: Basis


def launch_power(mnb: MnbView) -> Power | None:
    """The mean over the devices of a launch; None where one is not known, or shares its GPU."""
    uuids = [device.uuid or "" for device in mnb.devices if device.kind == "gpu"]  # a MIG device shares its board's
    seen = (mnb.telemetry.get(telemetry_key("gpu", uuid)) for uuid in uuids)
    known = [power for one in seen if one is not None and (power := _power(one, mnb.sampled)) is not None]
    if not known or len(known) < len(mnb.devices):
        return None
    return Power(mean([power.watts for power in known]), max((one.basis for one in known), key=_BEST_FIRST.index))


def _power(seen: TelemetryView, sampled: SampledView | None) -> Power | None:
    gauge = seen.power_w
    if sampled is None:
        return None if gauge is None else Power(gauge.mean, "samples from start to stop")
    length_s = sampled.end_s - sampled.start_s
    counter = seen.energy_j
    if counter is not None and counter.span_s >= max(_LEAST_S, ENOUGH * length_s):
        return Power(max(0.0, counter.max - counter.min) / counter.span_s, "energy counter")
    if gauge is None:
        return None
    return Power(gauge.mean, "samples" if gauge.n * sampled.interval_s >= ENOUGH * length_s else "few samples")


def power_doubts(rows: Mapping[str, TestSummary]) -> Iterator[str]:
    """Why the power of some tests says less than it should, in words."""
    known = [test for test, row in rows.items() if row.power_basis]
    for basis, words in _DOUBTS.items():
        tests = [test for test in known if basis in rows[test].power_basis]
        if tests:
            yield f"{words}: {', '.join(tests) if len(tests) < len(known) else 'all tests'}"


def lost_samples(rows: Mapping[str, TestSummary]) -> Iterator[str]:
    """How much telemetry was lost, in words."""
    lost = [row.telemetry_dropped for row in rows.values() if row.telemetry_dropped]
    if lost:
        yield f"samples were lost in {len(lost)} of {len(rows)} tests, up to {max(lost)} in a launch"
