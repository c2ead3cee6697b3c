"""Counters of a GPU that do not fit each other: energy and power, throttling around a window and in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milabench_ng.node.conditions import throttled_fraction
from milabench_ng.report.verification.doubts.doubt import Doubt
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.telemetry.messages import telemetry_key

_POWER = 1.1
"""Meters of power are good to 5 %."""
_SAMPLES, _SPAN_S = 1.25, 5.0
"""How far samples of power and of the energy counter may be apart over so many seconds: honest ones by 1.06."""
_AFTERWARDS = 1.5
"""How much more power a GPU takes after a window than it did in it while it was busy: it goes on with the same work
until the stop, and then rests. Honest ones: 0.6 to 1.01 times. One that waited for pictures took 1.6 times its mean
once they came faster, and was busy for 38 % of its window. Before the window, autotuning takes what it
likes: 1.7 times was seen."""
_LEAST_BUSY = 0.1
"""A GPU that is busy for less than a tenth of its window takes most of its power at rest."""
_READ_S = 0.5
"""Counters of the GPU are read one after another."""


def _apart(evidence: Evidence) -> Iterator[str]:
    yield from _energy(evidence)
    yield from _held_down(evidence)


def _energy(evidence: Evidence) -> Iterator[str]:
    """Energy of the GPUs between the edges against their mean power in the window, and the limit of their power."""
    for name, record in evidence.named():
        mnb = record.mnb
        before, after = mnb.conditions.get("before"), mnb.conditions.get("after")
        if before is None or after is None or mnb.window is None or mnb.sampled is None:
            continue
        span_s = after.time_s - before.time_s
        for uuid in before.gpus.keys() & after.gpus.keys():
            first, last = before.gpus[uuid].energy_mj, after.gpus[uuid].energy_mj
            power = mnb.telemetry.get(telemetry_key("gpu", uuid), {}).get("power_w")
            if first is None or last is None or power is None or not {"mean", "max"} <= power.keys():
                continue
            joules, window_s = (last - first) / 1000, mnb.sampled.end_s - mnb.sampled.start_s
            settings = before.settings.gpus.get(uuid) if before.settings else None
            highest = max(power["max"], (settings.power_limit_w if settings else None) or 0.0)
            in_window = power["mean"] * window_s
            sampled, rest_s = mnb.telemetry[telemetry_key("gpu", uuid)], after.time_s - mnb.sampled.start_s
            why_not = (*_counted(sampled, first, last), *_afterwards(sampled, last, rest_s))
            yield from (f"{name}: {uuid} {why}" for why in why_not)
            most = settings.power_limit_w if settings else None
            if most is not None and power["mean"] > most * _POWER:
                yield f"{name}: {uuid} took {power['mean']:.0f} W on average, its power limit is {most:g} W"
            if not in_window / _POWER <= joules <= (in_window + highest * (span_s - window_s)) * _POWER:
                yield (
                    f"{name}: {uuid} used {joules:.0f} J in {span_s:.1f} s, and {power['mean']:.0f} W in the "
                    f"{window_s:.1f} s of its window"
                )


def _counted(sampled: Mapping[str, Mapping[str, float]], first_mj: int, last_mj: int) -> Iterator[str]:
    """The samples of the energy counter against those of the power, and against the counter around them."""
    energy, power = sampled.get("energy_j", {}), sampled["power_w"]
    if not {"min", "max", "span_s"} <= energy.keys() or energy["span_s"] < _SPAN_S:
        return
    joules, expected = energy["max"] - energy["min"], power["mean"] * energy["span_s"]
    if not expected / _SAMPLES <= joules <= expected * _SAMPLES:
        yield f"counted {joules:.0f} J in {energy['span_s']:.1f} s, and took {power['mean']:.0f} W"
    if energy["min"] < first_mj / 1000 - 1 or energy["max"] > last_mj / 1000 + 1:
        yield "counted energy in the window that its counter had before or after it"


def _afterwards(sampled: Mapping[str, Mapping[str, float]], last_mj: int, rest_s: float) -> Iterator[str]:
    """The energy after the last sample against the power in the window; ``rest_s``: from its start to the last edge."""
    energy, power = sampled.get("energy_j", {}), sampled["power_w"]
    if not {"max", "span_s"} <= energy.keys() or energy["span_s"] < _SPAN_S:
        return
    joules, left_s = last_mj / 1000 - energy["max"], rest_s - energy["span_s"]
    busy = max(sampled.get("utilization_pct", {}).get("mean", 100.0) / 100, _LEAST_BUSY)
    if joules > _AFTERWARDS * power["mean"] / busy * left_s:
        yield f"used {joules:.0f} J in the {left_s:.1f} s after its window, and took {power['mean']:.0f} W in it"


def _held_down(evidence: Evidence) -> Iterator[str]:
    """Time for which clocks were held down, more of it in the window than between the edges around it."""
    for name, record in evidence.named():
        before, after = record.mnb.conditions.get("before"), record.mnb.conditions.get("after")
        if before is None or after is None or after.time_s <= before.time_s:
            continue
        for uuid, parts in throttled_fraction(before, after).items():
            sampled = record.mnb.telemetry.get(telemetry_key("gpu", uuid), {})
            for reason, part in parts.items():
                seen, whole_s = sampled.get(f"{reason}_s", {}), part * (after.time_s - before.time_s)
                in_window_s = seen["max"] - seen["min"] if {"min", "max"} <= seen.keys() else 0.0
                if in_window_s > whole_s + _READ_S:
                    yield (
                        f"{name}: {reason} held the clocks of {uuid} down for {in_window_s:.1f} s of the window, and "
                        f"for {whole_s:.1f} s between the edges around it"
                    )


DOUBT = Doubt(
    name="gpu-counters",
    title="power, energy and throttling of a GPU that do not fit each other",
    ask="ask for the driver's version, and for the telemetry of the node's own monitoring",
    look=_apart,
)
