"""What a ratio says: better, worse, equivalent or inconclusive. Pure.

One rule makes all verdicts: the 95 % interval lies wholly outside the margin (better, worse), wholly inside it
(equivalent), or across an edge (inconclusive). So it is the margin itself that is tested, never a difference of 0:
outside it is a minimum-effect test (Murphy and Myors, J. Appl. Psychol. 84, 1999), inside it two one-sided tests
(Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), each one-sided test at 2.5 %. A false verdict, of either kind, takes
an interval that misses the truth: at most 5 %, wherever the true ratio lies, at an edge too. There "equivalent" and
"different" are both false, so tests at 5 % a side would add up to more.

Several tests are one family, adjusted after Holm (Scand. J. Statist. 6, 1979): each has one p value, of the verdict
that its estimate points to, and a false one of either kind is an error of the family. That Holm's steps keep such
errors below 5 % for independent tests is Shaffer's (Ann. Statist. 8, 1980); ``scripts/simulate-intervals`` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from milabench_ng.report.statistics.intervals import (
    LEVEL,
    Estimate,
    Interval,
    WeightedStat,
    combine,
    interval,
    repeats_needed,
    t_quantile,
    t_tail,
    why_none,
)

RANKED_FROM = 5
"""Repeats on either side from which on there is a verdict."""
MARGIN = 0.02
"""The difference that does not matter, unless told otherwise."""

Verdict = Literal["better", "worse", "equivalent", "inconclusive", "not ranked"]

_SIGNIFICANCE = 1 - LEVEL
_POWER = 0.80


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of throughputs (geometric means over the repeats, no charge for spread or failures) and what it says."""

    ratio: Interval | None
    """None where there is no interval, for the reason in ``why``."""
    verdict: Verdict
    why: str = ""
    """Why there is no interval or no verdict; empty where there are both."""
    p: float | None = None
    """Of the verdict, or of the one that is not yet certain, see `p_value`; adjusted, if over several tests."""
    mde_pct: float | None = None
    """The true difference that four of five comparisons like this one would call better or worse, in percent."""
    repeats_needed: int | None = None
    """On each side, for an interval of +-1 %; None above 1000."""


def unusual(margin: float) -> str:
    """``"margin 0.01 %"``; empty for the one that is meant unless told otherwise."""
    return "" if margin == MARGIN else f"margin {100 * margin:.3g} %"


def effects(all_parts: Sequence[Sequence[WeightedStat]], margin: float = MARGIN) -> tuple[Effect, ...]:
    """Of each of several tests, their p values adjusted for being several. The parts sum to a log ratio."""
    estimates = [combine(parts) for parts in all_parts]
    adjusted = iter(holm([p_value(estimate, margin) for estimate in estimates if estimate is not None]))
    return tuple(
        Effect(ratio=None, verdict="not ranked", why=why_none(parts))
        if estimate is None
        else _effect(parts, estimate, next(adjusted), margin)
        for parts, estimate in zip(all_parts, estimates, strict=True)
    )


def effect(parts: Sequence[WeightedStat], margin: float = MARGIN) -> Effect:
    """Of one ratio."""
    return effects([parts], margin)[0]


def _effect(parts: Sequence[WeightedStat], estimate: Estimate, p: float, margin: float) -> Effect:
    ranked = estimate.n >= RANKED_FROM
    return Effect(
        ratio=interval(estimate),
        verdict=_verdict(estimate, p, margin) if ranked else "not ranked",
        why="" if ranked else f"under {RANKED_FROM} repeats",
        p=p,
        mde_pct=100 * math.expm1(_detectable(estimate, margin)),
        repeats_needed=repeats_needed(parts),
    )


def _verdict(estimate: Estimate, p: float, margin: float) -> Verdict:
    if p >= _SIGNIFICANCE:
        return "inconclusive"
    if abs(estimate.mean) < math.log1p(margin):
        return "equivalent"
    return "better" if estimate.mean > 0 else "worse"


def p_value(estimate: Estimate, margin: float = 0.0) -> float:
    """Twice the one-sided p value of the true ratio lying beyond the nearer edge of the margin, seen from the estimate.

    Of an estimate outside it is that of a true difference within the margin; inside, of one that is larger. It is below
    5 % exactly where the 95 % interval does not hold an edge. With a margin of 0: of no difference, two-sided.
    """
    away = abs(abs(estimate.mean) - math.log1p(margin))
    if estimate.variance == 0:
        return 0.0 if away else 1.0
    return 2 * t_tail(away / math.sqrt(estimate.variance), estimate.df)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: the k-th smallest times ``m - k + 1``, never below a smaller one's."""
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def _detectable(estimate: Estimate, margin: float) -> float:
    """The log ratio whose interval lies outside the margin with the wanted power."""
    if estimate.variance == 0:
        return math.log1p(margin)
    quantiles = t_quantile(1 - _SIGNIFICANCE / 2, estimate.df) + t_quantile(_POWER, estimate.df)
    return math.log1p(margin) + quantiles * math.sqrt(estimate.variance)
