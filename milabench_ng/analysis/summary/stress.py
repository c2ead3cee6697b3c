"""How hard a test burned, and how it held out: from the records of its launches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from milabench_ng.model.bounds import Amount, Moment
from milabench_ng.records.endurance import Endurance, Part
from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import telemetry_key

Ends = tuple[Moment, Moment]
"""A mean at the beginning and at the end."""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """How a launch changed from its first minutes to its last."""

    slot: str
    """Of its first device."""
    minutes: Amount
    """Of each end."""
    change: Moment
    """Of the rate, relative."""
    sm_clock_mhz: Ends | None = None
    temperature_c: Ends | None = None
    memory_temperature_c: Ends | None = None
    power_w: Ends | None = None
    """Of its first device; None if unknown."""


def power_fraction(launches: Iterable[Mnb]) -> float | None:
    """The part of the power limit that the device reached that reached least; None if unknown."""
    found = [part for mnb in launches for part in (mnb.power_fraction or {}).values()]
    return min(found, default=None)


def worst_drift(launches: Iterable[Mnb]) -> Drift | None:
    """The launch whose rate fell most; None if none was to work for long."""
    return min(_drifts(launches), key=lambda drift: drift.change, default=None)


def _drifts(launches: Iterable[Mnb]) -> Iterator[Drift]:
    for mnb in launches:
        if mnb.endurance:
            key = telemetry_key("gpu", mnb.devices[0].uuid or "")
            yield Drift(
                slot=mnb.launch.slot_ids[0],
                minutes=(mnb.endurance.first.end_s - mnb.endurance.first.start_s) / 60,
                change=mnb.endurance.change,
                sm_clock_mhz=_ends(mnb.endurance, key, "sm_clock_mhz"),
                temperature_c=_ends(mnb.endurance, key, "temperature_c"),
                memory_temperature_c=_ends(mnb.endurance, key, "memory_temperature_c"),
                power_w=_ends(mnb.endurance, key, "power_w"),
            )


def _ends(seen: Endurance, key: str, name: str) -> Ends | None:
    first, last = _mean(seen.first, key, name), _mean(seen.last, key, name)
    return None if first is None or last is None else (first, last)


def _mean(part: Part, key: str, name: str) -> float | None:
    found = part.telemetry.get(key, {}).get(name)
    return found.mean if found else None
