"""The rate of a test in the units that its workload derives from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.catalogue import DEVICE_PEAKS, Derived
from milabench_ng.model.errors import InputError


class DerivedRate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate in another unit."""

    unit: str
    formula: str
    value: float | None
    """None if nothing was measured, or if the formula has no value for this test's options and device."""


def derived_rates(row: TestSummary, rate: float | None, peaks: Mapping[str, float]) -> tuple[DerivedRate, ...]:
    """``rate``, in items per second, in all units of ``row``; ``peaks``: the device's, empty if they are not known."""
    return tuple(
        DerivedRate(
            unit=each.unit, formula=each.formula, value=None if rate is None else _value(each, rate, row, peaks)
        )
        for each in row.work.derived
        if each.fits(row.work.options)
    )


def _value(derived: Derived, rate: float, row: TestSummary, peaks: Mapping[str, float]) -> float | None:
    own = {name: value for name, value in row.notes.items() if not (name in row.work.options or name in DEVICE_PEAKS)}
    try:
        return derived.of(rate, row.work.options, {**own, **peaks, "devices": row.devices})
    except InputError:  # a folder of others may hold any formula, and its other numbers still count
        return None
