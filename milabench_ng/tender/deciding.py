"""What would decide an inconclusive verdict: how many sessions of how many repeats, and on which side. Pure.

The ratio is taken as measured, and each side's spread as well. More sessions of a side divide its variance, and from
three on they also show its days, for which a variance is declared until then. A plan is enough if what is open is then
decided in four of five cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.other_machine import predicted
from milabench_ng.analysis.statistics.intervals import (
    LEVEL,
    RANKED_FROM,
    SESSIONS_FROM,
    Estimate,
    LogStat,
    WeightedStat,
    combine,
)
from milabench_ng.tender.characteristic import surely

Side = Literal["bid", "delivered"]
_PLANS: tuple[tuple[Side, ...], ...] = (("delivered",), ("bid",), ("bid", "delivered"))
"""Who measures again, the buyer first."""
_ASSURANCE = 0.8
_MOST_SESSIONS = 20


class OpenRatio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio on which the verdict waits."""

    parts: Sequence[WeightedStat]
    """Of the delivered node with coefficients above 0, of the bid below."""
    declared: dict[Side, float]
    """The variance between days, of each side that has too few sessions."""


class Deciding(msgspec.Struct, frozen=True, kw_only=True):
    """What would decide."""

    sides: tuple[Side, ...]
    """Who measures again."""
    sessions: int
    repeats: int = RANKED_FROM
    """In each session."""
    at_least: bool = False
    """Whether that is only what a verdict asks for: the spread is not known yet."""


def deciding(open_ratios: Sequence[OpenRatio], wanted: float, family: int) -> Deciding | None:
    """The least that decides all of ``open_ratios`` against ``wanted``, a logarithm; None if 20 sessions do not.

    ``family``: over how many p values Holm adjusts.
    """
    thin = _too_few(open_ratios)
    if thin:
        return Deciding(sides=thin, sessions=SESSIONS_FROM, at_least=True)
    for sides, sessions in product(_PLANS, range(SESSIONS_FROM, _MOST_SESSIONS + 1)):
        planned = [_planned(one, sides, sessions) for one in open_ratios]
        if planned and all(one is not None and _decided(one, wanted, family) for one in planned):
            return Deciding(sides=sides, sessions=sessions)
    return None


def _too_few(open_ratios: Sequence[OpenRatio]) -> tuple[Side, ...]:
    """The sides that have too few repeats for any verdict."""
    parts = [part for one in open_ratios for part in one.parts]
    found = {_side(c) for c, stat in parts if stat is None or stat.std is None or stat.n < RANKED_FROM}
    return tuple(sorted(found))


def _side(coefficient: float) -> Side:
    return "delivered" if coefficient > 0 else "bid"


def _planned(one: OpenRatio, sides: Sequence[Side], sessions: int) -> Estimate | None:
    """The estimate that so many sessions of ``sides`` would give."""
    made = combine([(c, _measured_again(stat, sessions) if _side(c) in sides else stat) for c, stat in one.parts])
    declared = math.fsum(value / sessions if side in sides else value for side, value in one.declared.items())
    return None if made is None else predicted(made, declared)


def _measured_again(stat: LogStat | None, sessions: int) -> LogStat | None:
    """The same with the means of ``sessions``, each of `RANKED_FROM` repeats if the spread is that of repeats."""
    if stat is None or stat.std is None:
        return None
    std = stat.std if stat.sessions else stat.std * math.sqrt(stat.inflation / RANKED_FROM)
    return LogStat(n=sessions * RANKED_FROM, mean=stat.mean, std=std, sessions=sessions)


def _decided(planned: Estimate, wanted: float, family: int) -> bool:
    """Whether a true ratio as measured is found to keep or to break the guarantee in four of five cases."""
    away, strict = planned.mean - wanted, 1 - (1 - LEVEL) / family
    return surely(planned, away, LEVEL) >= _ASSURANCE or surely(planned, -away, strict) >= _ASSURANCE
