"""Curves of tests that differ in one option: the rate of each against what a workload sets beside it. Pure.

A workload says so of a derived unit (`Derived.curve_over`). Serving, for example, has tokens per second of a GPU
against those of a user, over the requests that are under way.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import UNSET

from milabench_ng.analysis.scoring.scored import ScoredTest
from milabench_ng.analysis.summary.derived_rates import derived_rates
from milabench_ng.analysis.summary.summary import Latency, TestSummary, name_of_row
from milabench_ng.model.grouping import grouped


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One test of a curve."""

    test: str
    at: float
    """The value of the option."""
    perf: float
    """Items per second of a launch."""
    against: float
    """The same in the derived unit."""
    item_latency: dict[str, Latency]


class RateCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Tests that differ in one option."""

    name: str
    """What the names of its tests begin with."""
    unit: str
    """What an item is."""
    over: str
    """The option."""
    against: str
    """The derived unit."""
    points: tuple[CurvePoint, ...]
    """By the value of the option."""


def rate_curves(
    rows: Mapping[str, ScoredTest], tests: Mapping[str, TestSummary], peaks: Mapping[str, float]
) -> tuple[RateCurve, ...]:
    """The curves that have two points or more. ``peaks``: those of the device, for formulas."""
    found = [
        ((_rest(tests[label], over), over, unit), _point(label, at, rate, value, tests[label]))
        for label, scored in rows.items()
        if (rate := scored.perf)
        for over, at, unit, value in _against(tests[label], rate, peaks)
    ]
    return tuple(
        _curve(over, unit, tests[points[0][1].test].work.unit, [point for _, point in points])
        for (_, over, unit), points in grouped(found, lambda pair: pair[0]).items()
        if len({point.at for _, point in points}) > 1
    )


def _against(row: TestSummary, rate: float, peaks: Mapping[str, float]) -> Iterator[tuple[str, float, str, float]]:
    """The options that a row's curves are over, each with its value, the derived unit and the value of this."""
    known = {one.unit: one.value for one in derived_rates(row, rate, peaks)}
    for each in row.work.derived:
        value = known.get(each.unit)
        at = None if each.curve_over is UNSET else row.work.options.get(each.curve_over)
        if each.curve_over is not UNSET and isinstance(at, int | float) and value is not None:
            yield each.curve_over, at, each.unit, value


def _rest(row: TestSummary, over: str) -> tuple[object, ...]:
    """All that tests of one curve have in common."""
    options = {name: value for name, value in row.work.options.items() if name != over}
    company = None if row.company is None else frozenset(row.company)
    return msgspec.structs.replace(row.work, options=options), row.devices, company


def _point(label: str, at: float, rate: float, value: float, row: TestSummary) -> CurvePoint:
    return CurvePoint(test=label, at=at, perf=rate, against=value, item_latency=row.item_latency)


def _curve(over: str, against: str, unit: str, points: list[CurvePoint]) -> RateCurve:
    names = [name_of_row(point.test) for point in points]
    return RateCurve(
        name=os.path.commonprefix(names).rstrip("_-+.0123456789") or names[0],  # noqa: RUF071  # no paths
        unit=unit,
        over=over,
        against=against,
        points=tuple(sorted(points, key=lambda point: point.at)),
    )
