"""Power and energy of a GPU that do not fit each other: one of the two was not measured."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import telemetry_key
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_POWER = 1.1
"""Meters of power are good to 5 %."""


def _apart(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        yield from (f"{name}: {why}" for why in _of_launch(record.mnb))


def _of_launch(mnb: Mnb) -> Iterator[str]:
    """Energy between the edges against the mean power in the window, and the limit of the power around it."""
    before, after = mnb.conditions.get("before"), mnb.conditions.get("after")
    if before is None or after is None or mnb.window is None or mnb.sampled is None:
        return
    span_s, window_s = after.time_s - before.time_s, mnb.sampled.end_s - mnb.sampled.start_s
    for uuid in before.gpus.keys() & after.gpus.keys():
        first, last = before.gpus[uuid].energy_mj, after.gpus[uuid].energy_mj
        power = mnb.telemetry.get(telemetry_key("gpu", uuid), {}).get("power_w")
        if first is None or last is None or power is None:
            continue
        settings = before.settings.gpus.get(uuid) if before.settings else None
        most = settings.power_limit_w if settings else None
        if most is not None and power.mean > most * _POWER:
            yield f"{uuid} used {power.mean:.0f} W on average, but its power limit is {most:g} W"
        joules, in_window = (last - first) / 1000, power.mean * window_s
        around = max(power.max, most or 0.0) * (span_s - window_s)
        if not in_window / _POWER <= joules <= (in_window + around) * _POWER:
            yield (
                f"{uuid} used {joules:.0f} J in {span_s:.1f} s, and {power.mean:.0f} W in the {window_s:.1f} s of "
                "its window"
            )


DOUBT = Doubt(
    name="gpu-counters",
    title="inconsistent power and energy of a GPU",
    ask="ask for the driver's version, and for the telemetry of the node's own monitoring",
    look=_apart,
)
