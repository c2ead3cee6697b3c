"""How likely each decision on a delivery is, for nodes whose true ratio is known in all tests. Pure.

One test or the score breaks the guarantee at Holm's strictest step at least; the errors of tests are taken as
independent. Each probability is one of the noncentral t distribution (Johnson and Welch, Biometrika 31, 1940).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from milabench_ng.analysis.statistics.intervals import LEVEL, Estimate, t_quantile, t_tail

STEPS_PCT = (-5, -3, -2, -1, 0, 1, 2, 3, 5)
"""The ratios of the operating characteristic, in percent from the guarantee."""


class OperatingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided of a node whose true ratio is known, at the spread of these two runs."""

    ratio: float
    keeps: float
    """Probability, 0 to 1, as is ``breaks``."""
    breaks: float


def characteristic(
    score: Estimate | None, tests: Sequence[Estimate], guarantee: float, family: int
) -> tuple[OperatingPoint, ...]:
    """How likely each decision is for nodes of known ratios. ``family``: over how many p values Holm adjusts."""
    if score is None or not score.variance:
        return ()
    ratios = sorted({1.0, *(guarantee * (1 + step / 100) for step in STEPS_PCT)})
    return tuple(_point(score, tests, ratio, math.log(ratio / guarantee), family) for ratio in ratios)


def _point(score: Estimate, tests: Sequence[Estimate], ratio: float, away: float, family: int) -> OperatingPoint:
    strict = 1 - (1 - LEVEL) / family
    spared = math.prod(1 - surely(test, -away, strict) for test in tests)
    breaks = 1 - spared * (1 - surely(score, -away, strict))
    return OperatingPoint(ratio=ratio, keeps=surely(score, away, LEVEL) * spared, breaks=breaks)


def surely(estimate: Estimate, beyond: float, level: float) -> float:
    """The probability that what truly lies ``beyond`` the guarantee, as a logarithm, is surely found there."""
    if not estimate.variance:
        return float(beyond > estimate.moved)
    error = math.sqrt(estimate.variance)
    return t_tail(t_quantile(level, estimate.df) + estimate.moved / error, estimate.df, beyond / error)
