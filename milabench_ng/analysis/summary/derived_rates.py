"""The rate of a test in the units that its workload derives from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.catalogue import DEVICE_PEAKS, Derived
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped


class DerivedRate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate in another unit."""

    unit: str
    formula: str
    value: float | None
    """None if nothing was measured, or if the formula has no value for this test's options and device."""


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a sweep."""

    at: float
    values: dict[str, float]
    """By unit, of those that have a value."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What each step of a test goes through, such as sizes of messages."""

    over: str
    units: tuple[str, ...]
    points: tuple[SweepPoint, ...]
    """In ascending order."""


def derived_rates(row: TestSummary, rate: float | None, peaks: Mapping[str, float]) -> tuple[DerivedRate, ...]:
    """``rate``, in items per second, in all units of ``row``; ``peaks``: the device's, empty if they are not known."""
    return tuple(
        DerivedRate(
            unit=each.unit, formula=each.formula, value=None if rate is None else _value(each, rate, row, peaks)
        )
        for each in row.work.derived
        if each.curve_at is UNSET and each.fits(row.work.options)
    )


def sweeps(row: TestSummary, rate: float | None, peaks: Mapping[str, float]) -> tuple[Sweep, ...]:
    """The sweeps of ``row`` at this ``rate``, without the places that have no value."""
    values = [
        (str(each.curve_over), each.curve_at, each.unit, value)
        for each in row.work.derived
        if rate is not None and each.curve_at is not UNSET and each.fits(row.work.options)
        if (value := _value(each, rate, row, peaks)) is not None
    ]
    return tuple(
        Sweep(
            over=over,
            units=tuple(dict.fromkeys(unit for _, _, unit, _ in found)),
            points=tuple(
                SweepPoint(at=at, values={unit: value for _, _, unit, value in here})
                for at, here in sorted(grouped(found, lambda one: one[1]).items())
            ),
        )
        for over, found in grouped(values, lambda one: one[0]).items()
    )


def _value(derived: Derived, rate: float, row: TestSummary, peaks: Mapping[str, float]) -> float | None:
    own = {name: value for name, value in row.notes.items() if not (name in row.work.options or name in DEVICE_PEAKS)}
    try:
        return derived.of(rate, row.work.options, {**own, **peaks, "devices": row.devices})
    except InputError:  # a folder of others may hold any formula, and its other numbers still count
        return None
