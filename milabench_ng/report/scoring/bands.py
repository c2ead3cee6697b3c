"""Ratios to estimates: the band of an estimate, propagated to everything computed from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from milabench_ng.report.scoring.scored import ScoredRows, ScoredTest
from milabench_ng.report.scoring.weights import Weights
from milabench_ng.report.summary.summary import Summary


class EstimateBand(msgspec.Struct, frozen=True, kw_only=True):
    """A value that rests on an estimate, and its range if the estimate's band holds."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> EstimateBand:
        """The same in a unit that is ``factor`` times as fine."""
        return EstimateBand(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @property
    def inverse(self) -> EstimateBand:
        """The band of the reciprocal."""
        return EstimateBand(value=1 / self.value, low=1 / self.high, high=1 / self.low)


def is_estimated(run: ScoredRows, base: ScoredRows, labels: Sequence[str]) -> bool:
    """Whether any of these rows is estimated, on either side."""
    return any(rows[label].estimated for rows in (run, base) for label in labels)


def ratio_band(
    ratio: float | None, run: ScoredRows, base: ScoredRows, labels: Sequence[str], weights: Weights
) -> EstimateBand | None:
    """The band around ``ratio``, which is over ``labels``; None if none of them is estimated.

    One rule made all estimates, so that they share its error: the logarithms of the rows' edges are averaged with the
    same weights as the rows, and nothing cancels.
    """
    if not ratio or not is_estimated(run, base, labels):
        return None
    low, high = (math.exp(_edge(side, run, base, labels, weights)) for side in (0, 1))
    return EstimateBand(value=ratio, low=ratio * low, high=ratio * high)


def _edge(side: int, run: ScoredRows, base: ScoredRows, labels: Sequence[str], weights: Weights) -> float:
    """The logarithm of one edge over the ratio: a high baseline makes the ratio low."""
    logs = [
        weights[label] * (math.log(_edges(run[label])[side]) - math.log(_edges(base[label])[1 - side]))
        for label in labels
    ]
    return math.fsum(logs) / math.fsum(weights[label] for label in labels)


def _edges(row: ScoredTest) -> tuple[float, float]:
    return row.estimated or (1.0, 1.0)


def rule_check(sides: Sequence[Summary], labels: Sequence[str]) -> str:
    """How the rule behind the estimated rows did on known pairs, at worst; empty without estimated rows."""
    found = [row.estimate for side in sides for label in labels if (row := side.tests[label]).estimate is not None]
    checks = [(each.held / each.known, each) for each in found if each is not None and each.known]
    if len(checks) < len(found):
        return "by a rule that was not checked"
    if not checks:
        return ""
    _, worst = min(checks, key=lambda pair: pair[0])
    return f"by a rule whose 95 % band held {worst.held} of {worst.known} known pairs left out"
