"""Compares the devices of a node, and finds those that are slower than they should be. Pure.

A fixed distance from the best device would call many healthy ones slow: of 64 that differ by 2 %, one is almost always
5 % below the best. Each device is therefore compared with the mean of the others of its model, see `device_gaps`. It is
slow if it lies more than 3 % below them beyond doubt: a one-sided t test at the margin, adjusted over all devices and
tests (Holm 1979). Smaller differences between like GPUs are normal (Sinha et al., SC 2022, arXiv:2208.11035).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.device_gaps import (
    MARGIN,
    DeviceGap,
    device_gaps,
    gaps_over_tests,
    layout,
    log_matrix,
)
from milabench_ng.analysis.statistics.effects import holm
from milabench_ng.analysis.statistics.intervals import LEVEL, RANKED_FROM
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.model.grouping import grouped

SOUGHT = 0.05
"""The slowdown of a device for which a report says how likely it would be found."""

MOST_REPEATS = 100
"""The most that a report asks for."""

_ASSURANCE = 0.80

Measure = Literal["mean", "min", "max"]
MEASURES: tuple[Measure, ...] = ("mean", "min", "max")


class GpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """One test: each device's rate relative to the best device's, 0 to 1; None if it has no result."""

    test: str
    relative: tuple[float | None, ...]


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A device that is slower than the others."""

    device: str
    test: str | None
    """None means over all tests."""
    effect_pct: float
    """Difference from the geometric mean of the others; below 0."""
    p: float
    """The probability of so slow a device if it is at most 3 % slower; adjusted over all devices and tests."""


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A device that is more than 3 % behind the others over all tests, which these repeats do not prove."""

    device: str
    effect_pct: float
    """As in `Straggler`."""
    p: float
    """As in `Straggler`; not below 0.05."""
    repeats: int
    """The fewest of any test."""
    repeats_needed: int | None
    """With how many it would be proven in four of five runs, if it is that slow; None above 100."""


class GpuComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Three matrices of tests by devices, and the slow devices."""

    devices: tuple[str, ...]
    models: tuple[str, ...]
    """The model of each device; empty if all are the same or it is not recorded."""
    mean: tuple[GpuRow, ...]
    min: tuple[GpuRow, ...]
    max: tuple[GpuRow, ...]
    stragglers: tuple[Straggler, ...]
    overall: tuple[Straggler, ...]
    """Slow by the mean over the tests: these devices should be inspected."""
    behind: tuple[Behind, ...] = ()
    """Those that may be slow over all tests, worst first: more repeats would tell."""
    noticed: float | None = None
    """How likely a device that is 5 % slower in all tests is called slow over all tests, 0 to 1; that of the device of
    which it is least likely. None if no device is compared over all tests."""
    judged: bool
    """Whether any test was repeated on devices of one model: without repeats, nobody can tell which are slow."""

    @property
    def alone(self) -> tuple[str, ...]:
        """The only devices of their model: whether they are slow is unknown."""
        return tuple(
            device for device, model in zip(self.devices, self.models, strict=False) if self.models.count(model) == 1
        )

    def rows(self, measure: Measure) -> tuple[GpuRow, ...]:
        """One of the matrices."""
        return {"mean": self.mean, "min": self.min, "max": self.max}[measure]


def side_by_side(summary: Summary) -> GpuComparison | None:
    """Compare devices over the tests with one device per launch; None if fewer than two devices have results.

    A test with results for only one device (``scaling.1``) compares nothing, so it is left out.
    """
    tests = {label: row for label, row in summary.tests.items() if len(row.pergpu or {}) > 1}
    names = {device for row in tests.values() for device in row.pergpu or {}}
    devices = tuple(sorted(names, key=lambda name: (int(name) if name.isdigit() else math.inf, name)))
    if len(devices) < 2:
        return None
    groups = list(grouped(devices, lambda device: _model(device, summary.models)).values())
    gaps = [gap for group in groups for gap in _gaps(tests, group)]
    slow = slow_among(gaps)
    return GpuComparison(
        devices=devices,
        models=tuple(_model(device, summary.models) or "not recorded" for device in devices) if len(groups) > 1 else (),
        mean=tuple(_row(label, row, devices, "mean") for label, row in tests.items()),
        min=tuple(_row(label, row, devices, "min") for label, row in tests.items()),
        max=tuple(_row(label, row, devices, "max") for label, row in tests.items()),
        stragglers=tuple(one for one in slow if one.test is not None),
        overall=tuple(one for one in slow if one.test is None),
        behind=behind_among(gaps),
        noticed=noticed_of(gaps),
        judged=bool(gaps),
    )


def _model(slot: str, models: Mapping[str, str]) -> str:
    """The model of a slot's device; empty if not recorded."""
    return models.get(slot.rstrip(ascii_lowercase), "")


def _gaps(tests: Mapping[str, TestSummary], alike: Sequence[str]) -> list[DeviceGap]:
    """The gap of every device of one model, in each test and over the tests that all of them have."""
    layouts = {label: made for label, row in tests.items() if (made := layout(log_matrix(row, alike)))}
    single = [gap for label, made in layouts.items() for gap in device_gaps(made, label)]
    return single + gaps_over_tests([made for made in layouts.values() if len(made.gaps) == len(alike)])


def slow_among(gaps: Sequence[DeviceGap]) -> list[Straggler]:
    """The devices that are slower beyond doubt."""
    return [
        Straggler(device=gap.device, test=gap.test, effect_pct=100 * math.expm1(gap.mean), p=p)
        for gap, p in zip(gaps, _adjusted(gaps), strict=True)
        if p < 1 - LEVEL
    ]


def behind_among(gaps: Sequence[DeviceGap]) -> tuple[Behind, ...]:
    """The devices that are behind over all tests and not slower beyond doubt, worst first."""
    found = [
        Behind(
            device=gap.device,
            effect_pct=100 * math.expm1(gap.mean),
            p=p,
            repeats=gap.repeats,
            repeats_needed=_repeats_needed(gap, _strictest(gaps)),
        )
        for gap, p in zip(gaps, _adjusted(gaps), strict=True)
        if gap.test is None and gap.mean < MARGIN and p >= 1 - LEVEL
    ]
    return tuple(sorted(found, key=lambda one: one.effect_pct))


def noticed_of(gaps: Sequence[DeviceGap]) -> float | None:
    """The probability that a device that is `SOUGHT` slower is called so over all tests; single tests may call it, too.

    At Holm's strictest step.
    """
    whole = [gap for gap in gaps if gap.test is None]
    if not whole:
        return None
    sought = math.log1p(-SOUGHT)
    return min(gap.noticed(sought, _strictest(gaps), gap.repeats) for gap in whole)


def _adjusted(gaps: Sequence[DeviceGap]) -> list[float]:
    """The p values, adjusted over all devices and tests."""
    return holm([gap.p for gap in gaps], _weights(gaps))


def _weights(gaps: Sequence[DeviceGap]) -> list[float]:
    """Half of the error is for the verdicts over all tests, or many tests would hide a device that is slow in all."""
    whole = sum(gap.test is None for gap in gaps)
    return [1.0 if gap.test is not None else max(1, len(gaps) - whole) / whole for gap in gaps]


def _strictest(gaps: Sequence[DeviceGap]) -> float:
    """The level of the first step of a verdict over all tests."""
    weights = _weights(gaps)
    own = next(weight for gap, weight in zip(gaps, weights, strict=True) if gap.test is None)
    return 1 - (1 - LEVEL) * own / math.fsum(weights)


def _repeats_needed(gap: DeviceGap, level: float) -> int | None:
    """At least as many as an interval takes."""
    asked = range(max(RANKED_FROM, gap.repeats + 1), MOST_REPEATS + 1)
    return next((each for each in asked if gap.noticed(gap.mean, level, each) >= _ASSURANCE), None)


def _row(label: str, row: TestSummary, devices: tuple[str, ...], measure: Measure) -> GpuRow:
    rates = {device: float(getattr(stat, measure)) for device, stat in (row.pergpu or {}).items()}
    best = max(rates.values())
    relative = (rates[device] / best if device in rates and best > 0 else None for device in devices)
    return GpuRow(test=label, relative=tuple(relative))
