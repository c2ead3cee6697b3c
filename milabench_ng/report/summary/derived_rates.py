"""The rate of a test in the units that its workload derives from it. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.catalogue import Derived
from milabench_ng.errors import InputError
from milabench_ng.report.summary.summary import TestSummary


class DerivedRate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate in another unit."""

    unit: str
    formula: str
    value: float | None
    """None if nothing was measured, or if the formula has no value for this test's options."""


def derived_rates(row: TestSummary, rate: float | None) -> tuple[DerivedRate, ...]:
    """``rate``, in items per second, in all units of ``row``."""
    return tuple(
        DerivedRate(unit=each.unit, formula=each.formula, value=None if rate is None else _value(each, rate, row))
        for each in row.derived
    )


def _value(derived: Derived, rate: float, row: TestSummary) -> float | None:
    try:
        return derived.of(rate, row.options, {**row.notes, "devices": row.devices})
    except InputError:  # a folder of others may hold any formula, and its other numbers still count
        return None
