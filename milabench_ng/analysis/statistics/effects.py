"""The verdict on a ratio: better, worse, equivalent or inconclusive. Pure.

One rule gives all verdicts: the 95 % interval lies wholly outside the margin (better, worse), wholly inside it
(equivalent), or across an edge (inconclusive). The tested hypothesis is therefore the margin itself, never a difference
of 0: outside, this is a minimum-effect test (Murphy and Myors, J. Appl. Psychol. 84, 1999), inside it two one-sided
tests (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), each one-sided test at 2.5 %. A false verdict of either kind
requires an interval that misses the truth: at most 5 %, wherever the true ratio lies, even at an edge. There
"equivalent" and "different" are both false, so tests at 5 % per side would add up to more.

Several tests form one family, adjusted by Holm's method (Scand. J. Statist. 6, 1979): each has one p value, for the
verdict that its estimate points to, and a false verdict of either kind is a family error. Holm's steps keep such errors
below 5 % for independent tests (Shaffer, Ann. Statist. 8, 1980); ``scripts/simulate-decisions`` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from milabench_ng.analysis.statistics.intervals import (
    LEVEL,
    RANKED_FROM,
    Estimate,
    Interval,
    WeightedStat,
    combine,
    interval,
    repeats_needed,
    t_tail,
    why_none,
)

MARGIN = 0.02
"""The default for the difference that does not matter."""

Verdict = Literal[
    "better",
    "worse",
    "equivalent",
    "differs in these sessions",
    "equivalent in these sessions",
    "inconclusive",
    "not judged",
]
DIFFERS: Verdict = "differs in these sessions"
ALIKE: Verdict = "equivalent in these sessions"
"""As `DIFFERS`, all that can be said of so few sessions that another day may turn it."""

_SIGNIFICANCE = 1 - LEVEL


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio (of geometric means over the repeats, no penalty for spread or failures) and its verdict.

    More is better, as of throughputs; see `of_a_cost` for other ratios.
    """

    ratio: Interval | None
    """None if there is no interval, for the reason in ``why``."""
    verdict: Verdict
    why: str = ""
    """Why there is no interval or no verdict; empty if there are both."""
    p: float | None = None
    """The p value of the verdict, or of the one not yet certain, see `p_value`; adjusted if over several tests."""
    repeats_needed: int | None = None
    """Repeats needed on each side for an interval of +-1 %; None above 1000."""


def unusual(margin: float) -> str:
    """``"margin 0.01 %"``; empty for the default."""
    return "" if margin == MARGIN else f"margin {100 * margin:.3g}%"


def of_these_sessions(found: Effect) -> Effect:
    """The same with no stronger verdict than that of these sessions."""
    weaker: dict[Verdict, Verdict] = {"better": DIFFERS, "worse": DIFFERS, "equivalent": ALIKE}
    return msgspec.structs.replace(found, verdict=weaker.get(found.verdict, found.verdict))


def of_a_cost(found: Effect) -> Effect:
    """The same for a ratio of which less is better, such as a slowdown."""
    turned: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
    return msgspec.structs.replace(found, verdict=turned.get(found.verdict, found.verdict))


def effects(
    all_parts: Sequence[Sequence[WeightedStat]], margin: float = MARGIN, each: str = "repeat"
) -> tuple[Effect, ...]:
    """The effect of each test, with p values adjusted for multiple testing. The parts sum to a log ratio.

    ``each``: what their statistics count.
    """
    estimates = [combine(parts) for parts in all_parts]
    adjusted = iter(holm([p_value(estimate, margin) for estimate in estimates if estimate is not None]))
    return tuple(
        Effect(ratio=None, verdict="not judged", why=why_none(parts, each))
        if estimate is None
        else _effect(parts, estimate, next(adjusted), margin, each)
        for parts, estimate in zip(all_parts, estimates, strict=True)
    )


def effect(parts: Sequence[WeightedStat], margin: float = MARGIN) -> Effect:
    return effects([parts], margin)[0]


def _effect(parts: Sequence[WeightedStat], estimate: Estimate, p: float, margin: float, each: str) -> Effect:
    ranked = estimate.n >= RANKED_FROM
    return Effect(
        ratio=interval(estimate),
        verdict=_verdict(estimate, p, margin) if ranked else "not judged",
        why=why_none(parts, each),
        p=p,
        repeats_needed=repeats_needed(parts),
    )


def _verdict(estimate: Estimate, p: float, margin: float) -> Verdict:
    if p >= _SIGNIFICANCE:
        return "inconclusive"
    if abs(estimate.mean) < math.log1p(margin):
        return "equivalent"
    return "better" if estimate.mean > 0 else "worse"


def p_value(estimate: Estimate, margin: float = 0.0) -> float:
    """Twice the one-sided p value for a true ratio on the other side of the margin's nearer edge from the estimate.

    For an estimate outside the margin, the hypothesis is a true difference within it; for one inside, a larger
    difference. The value is below 5 % exactly if the 95 % interval contains no edge. With a margin of 0, it is the
    two-sided p value of no difference.
    """
    away = max(0.0, abs(abs(estimate.mean) - math.log1p(margin)) - estimate.moved)
    if estimate.variance == 0:
        return 0.0 if away else 1.0
    return 2 * t_tail(away / math.sqrt(estimate.variance), estimate.df)


def holm(values: Sequence[float], weights: Sequence[float] = ()) -> list[float]:
    """Adjusted p values in the given order: the k-th smallest times ``m - k + 1``, never below a smaller one's.

    With ``weights``, which say how much of the family's error each may use, the p values are ordered by ``p / weight``
    and multiplied by the sum of the weights that are left over their own (Holm 1979).
    """
    shares = weights or [1.0] * len(values)
    adjusted = [0.0] * len(values)
    largest, left = 0.0, math.fsum(shares)
    for index in sorted(range(len(values)), key=lambda each: values[each] / shares[each]):
        largest = max(largest, min(1.0, left / shares[index] * values[index]))
        adjusted[index] = largest
        left -= shares[index]
    return adjusted
