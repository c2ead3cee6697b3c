"""Implausible values in a baseline: wrong units, impossible rates, nonsensical spread. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec

from milabench_ng.analysis.summary.summary import Summary, TestSummary, progression_steps

SLIP = 100.0
"""Limit for a ratio: two device generations differ by a factor of ten, a wrong unit by a thousand."""
_WILD = 1.0
"""Limit for the standard deviation over the mean."""


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """One implausible value."""

    test: str
    what: str


def doubts(summary: Summary, others: Mapping[str, Summary]) -> tuple[Doubt, ...]:
    """The doubts about a baseline, alone and compared with ``others`` (by name)."""
    found = [*_of_rows(summary), *_of_progressions(summary)]
    for name, other in others.items():
        found += _beside(summary, other, name)
    return tuple(found)


def _of_rows(summary: Summary) -> Iterator[Doubt]:
    for label, row in summary.tests.items():
        train = row.train
        if row.estimate is not None:
            continue
        if train is None:
            yield Doubt(test=label, what="nothing was measured")
            continue
        if not all(math.isfinite(value) and value >= 0 for value in (train.min, train.mean, train.max, train.std)):
            yield Doubt(test=label, what="a rate is negative or not finite")
        elif train.mean == 0:
            yield Doubt(test=label, what="the rate is 0")
        elif not train.min <= train.mean <= train.max * (1 + 1e-9):
            yield Doubt(
                test=label, what=f"the mean {train.mean:.6g} is not between {train.min:.6g} and {train.max:.6g}"
            )
        elif train.std > _WILD * train.mean:
            yield Doubt(test=label, what=f"the standard deviation is {train.std / train.mean:.0%} of the mean")
        if row.failures:
            yield Doubt(test=label, what=f"{row.failures} of {row.n} launches failed")


def _of_progressions(summary: Summary) -> Iterator[Doubt]:
    """Progressions in which more devices do less in total."""
    steps = progression_steps(list(summary.tests))
    for label, devices in steps.items():
        before = summary.tests.get(f"{label.rpartition('.')[0]}.{devices - 1}")
        now = summary.tests[label]
        if before is None or before.train is None or now.train is None:
            continue
        less, more = before.train.mean * (devices - 1), now.train.mean * devices
        if more < less:
            yield Doubt(
                test=label,
                what=f"{devices} devices do {more:.6g} {now.work.unit}/s together, {devices - 1} do {less:.6g}",
            )


def _beside(summary: Summary, other: Summary, name: str) -> Iterator[Doubt]:
    for label, row in summary.tests.items():
        ours, theirs = _classic(row, summary), _classic(other.tests.get(label), other)
        if not ours or not theirs:
            continue
        ratio = ours / theirs
        if not 1 / SLIP <= ratio <= SLIP:
            yield Doubt(test=label, what=f"{ratio:.4g} times the rate of {name}: is the unit {row.work.unit!r} right?")


def _classic(row: TestSummary | None, summary: Summary) -> float | None:
    """The rate in items of 2020 per second."""
    if row is None:
        return None
    rate = row.train.mean if row.train else row.estimate.value if row.estimate else None
    factor = 1.0 if summary.units == "classic" else row.work.classic_factor
    return None if rate is None or factor is None else rate * factor
