"""What a ratio says: better, worse, equivalent or inconclusive. Pure.

Equivalence is two one-sided t tests at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), that is: the 90 %
interval lies wholly within the margin. Several tests are adjusted after Holm (Scand. J. Statist. 6, 1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from milabench_ng.report.intervals import (
    LEVEL,
    Estimate,
    Interval,
    Part,
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
    """Of a difference this large or larger in either direction where there is none; adjusted, if over several tests."""
    mde_pct: float | None = None
    """The smallest difference that would be found in four of five comparisons like this one, in percent."""
    repeats_needed: int | None = None
    """On each side, for an interval of +-1 %; None above 1000."""


def effects(all_parts: Sequence[Sequence[Part]], margin: float = MARGIN) -> tuple[Effect, ...]:
    """Of each of several tests, their p values adjusted for being several. The parts sum to a log ratio."""
    estimates = [combine(parts) for parts in all_parts]
    adjusted = iter(holm([p_value(estimate) for estimate in estimates if estimate is not None]))
    return tuple(
        Effect(ratio=None, verdict="not ranked", why=why_none(parts))
        if estimate is None
        else _effect(parts, estimate, next(adjusted), margin)
        for parts, estimate in zip(all_parts, estimates, strict=True)
    )


def effect(parts: Sequence[Part], margin: float = MARGIN) -> Effect:
    """Of one ratio."""
    return effects([parts], margin)[0]


def _effect(parts: Sequence[Part], estimate: Estimate, p: float, margin: float) -> Effect:
    ranked = estimate.n >= RANKED_FROM
    return Effect(
        ratio=interval(estimate),
        verdict=_verdict(estimate, p, margin) if ranked else "not ranked",
        why="" if ranked else f"under {RANKED_FROM} repeats",
        p=p,
        mde_pct=100 * math.expm1(_detectable(estimate)),
        repeats_needed=repeats_needed(parts),
    )


def _verdict(estimate: Estimate, p: float, margin: float) -> Verdict:
    """A difference counts when it is there beyond doubt *and* larger than the margin."""
    matters = math.log1p(margin)
    if abs(estimate.mean) + estimate.half_width(1 - 2 * _SIGNIFICANCE) < matters:
        return "equivalent"
    if p < _SIGNIFICANCE and abs(estimate.mean) > matters:
        return "better" if estimate.mean > 0 else "worse"
    return "inconclusive"


def p_value(estimate: Estimate) -> float:
    """Two-sided, of no difference."""
    if estimate.variance == 0:
        return 1.0 if estimate.mean == 0 else 0.0
    return 2 * t_tail(abs(estimate.mean) / math.sqrt(estimate.variance), estimate.df)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: the k-th smallest times ``m - k + 1``, never below a smaller one's."""
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def _detectable(estimate: Estimate) -> float:
    """The log ratio that a two-sided test finds with the wanted power."""
    if estimate.variance == 0:
        return 0.0
    quantiles = t_quantile(1 - _SIGNIFICANCE / 2, estimate.df) + t_quantile(_POWER, estimate.df)
    return quantiles * math.sqrt(estimate.variance)
