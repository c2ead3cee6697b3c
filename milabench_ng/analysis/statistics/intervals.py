"""Confidence intervals. Pure.

The unit of replication is the repeat: launches at the same moment share the node's state, and slices of one launch
share everything, so neither counts as an independent measurement (Kalibera and Jones, "Rigorous benchmarking in
reasonable time", ISMM 2013). With three sessions or more, it is the session, for the same reason: its repeats share the
day. All computation uses natural logarithms, where a ratio is a difference and a weighted
geometric mean is a weighted sum. The parts of a sum may have different variances: degrees of freedom follow
Satterthwaite (Biometrics Bulletin 2, 1946) as in Welch (Biometrika 34, 1947). ``scripts/simulate-decisions`` shows the
coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from milabench_ng.analysis.statistics.drift import inflation
from milabench_ng.analysis.statistics.slow_repeats import usual
from milabench_ng.model.bounds import SMALLEST
from milabench_ng.model.grouping import grouped
from milabench_ng.model.stats import mean, sample_std

LEVEL = 0.95
"""The probability that an interval contains the true value."""

RANKED_FROM = 5
"""Fewest repeats, on each side, for an interval or a verdict: of fewer, only their range is told."""

_FAR = 30.0
"""Standard errors beyond which the noncentral t cannot be computed, and the normal distribution says the same."""
_TARGET = 0.01
_ASSURANCE = 0.80
_MOST_REPEATS = 1000


SESSIONS_FROM = 3
"""Fewest sessions whose means say how much sessions differ."""


class LogStat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Natural logarithms of a test's rate, one per repeat."""

    n: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    mean: Annotated[float, msgspec.Meta(ge=-35, le=35)]
    """Between the logarithms of the smallest and largest rates, about 34.5."""
    std: Annotated[float, msgspec.Meta(ge=0, le=50)] | None
    """Sample standard deviation (divisor n - 1); None for one repeat. For the two extreme rates it is 48.8."""
    sessions: Annotated[int, msgspec.Meta(ge=SESSIONS_FROM, le=10**9)] | None = None
    """If given, ``mean`` and ``std`` are those of this many means of sessions, not of the repeats."""
    inflation: Annotated[float, msgspec.Meta(ge=1, le=100)] = 1.0
    """The variance of the mean over that of independent repeats, see `drift`."""
    moved: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    """How far slow repeats move the mean, see `slow_repeats`."""

    def __post_init__(self) -> None:
        if (self.n == 1) != (self.std is None):
            raise ValueError(f"n is {self.n}, but std is {'missing' if self.std is None else 'given'}")

    def shifted(self, factor: float) -> LogStat:
        """The same for rates that are ``factor`` times as large."""
        return msgspec.structs.replace(self, mean=self.mean + math.log(factor))

    @property
    def independent(self) -> int:
        """How many independent values ``mean`` is of: sessions if there are enough, else repeats."""
        return self.sessions or self.n


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A weighted sum of mean logarithms, with its uncertainty."""

    mean: float
    variance: float
    """The variance of ``mean``."""
    df: float
    """Degrees of freedom of ``variance``; infinite if nothing varied."""
    n: int
    """The fewest repeats behind any of its parts."""
    moved: float = 0.0
    """How far slow repeats move ``mean``: an interval holds it with and without them."""

    def half_width(self, level: float = LEVEL) -> float:
        """Half the width of the interval, in logarithms."""
        error = t_quantile((1 + level) / 2, self.df) * math.sqrt(self.variance) if self.variance else 0.0
        return error + self.moved


class RepeatRange(msgspec.Struct, frozen=True, kw_only=True):
    """How far the repeats themselves lie apart: no interval, since few of them do not tell how well they are known."""

    low: float
    high: float
    n: int
    """How many repeats."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A value and the interval that contains the true one with probability ``level``."""

    value: float
    low: float
    high: float
    n: int
    """The fewest repeats behind it."""
    df: float
    level: float = LEVEL

    def scaled(self, factor: float) -> Interval:
        """The same in a unit that is ``factor`` times as fine."""
        return msgspec.structs.replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @property
    def inverse(self) -> Interval:
        """The interval of the reciprocal: a price over a score has the score's interval, inverted."""
        return msgspec.structs.replace(self, value=1 / self.value, low=1 / self.high, high=1 / self.low)


WeightedStat = tuple[float, LogStat | None]
"""A coefficient and what it multiplies."""


def log_stat(values: Sequence[float]) -> LogStat | None:
    """The statistic of the repeats' rates; None if there are none or one is not above 0."""
    if not values or min(values) < SMALLEST:
        return None
    return stat_of_logs([math.log(value) for value in values])


def stat_of_logs(logs: Sequence[float]) -> LogStat:
    """The statistic of at least one logarithm, in the order in which they were measured."""
    centre, std = mean(logs), sample_std(logs) if len(logs) > 1 else None
    moved = abs(mean([logs[place] for place in usual(logs)]) - centre)
    return LogStat(len(logs), centre, std, inflation=inflation(logs), moved=moved)


def session_stat(rates: Mapping[str, float], sessions: Mapping[str, int]) -> LogStat | None:
    """The statistic of rates by repeat, of the means of their sessions if there are enough of these.

    ``sessions`` has the session of each repeat; it may be empty if there is only one.
    """
    plain = log_stat(list(rates.values()))
    logs = grouped(rates, lambda repeat: sessions.get(repeat, 1))
    if plain is None or len(logs) < SESSIONS_FROM:
        return plain
    means = [mean([math.log(rates[repeat]) for repeat in repeats]) for repeats in logs.values()]
    return by_session(stat_of_logs(means), plain.n, plain.moved)


def by_session(means: LogStat, repeats: int, moved: float) -> LogStat:
    """The statistic of the ``means`` of sessions, which had so many ``repeats``; ``moved``: by slow ones."""
    return msgspec.structs.replace(means, n=repeats, sessions=means.n, moved=moved)


def combine(parts: Sequence[WeightedStat]) -> Estimate | None:
    """``sum(c * mean)`` of independent parts; None if one of them was not repeated, see `why_none`."""
    known = [(c, stat) for c, stat in parts if stat is not None and stat.std is not None]
    if not known or len(known) < len(parts):
        return None
    terms = [
        (
            (c * (stat.std or 0.0)) ** 2 / stat.independent * stat.inflation,
            max(1.0, (stat.independent - 1) / stat.inflation),
        )
        for c, stat in known
    ]
    variance = math.fsum(term for term, _ in terms)
    denominator = math.fsum(term * term / df for term, df in terms)
    return Estimate(
        mean=math.fsum(c * stat.mean for c, stat in known),
        variance=variance,
        df=variance * variance / denominator if denominator > 0 else math.inf,
        n=min(stat.n for _, stat in known),
        moved=math.fsum(abs(c) * stat.moved for c, stat in known),
    )


def why_none(parts: Sequence[WeightedStat], each: str = "repeat") -> str:
    """Why these parts have no interval; empty if they have one. ``each``: what their statistics count."""
    if not parts:
        return "nothing was measured"
    if any(stat is None for _, stat in parts):
        return f"no {each}s are recorded"
    fewest = min(stat.n for _, stat in parts if stat is not None)
    return f"one {each}" if fewest < 2 else f"fewer than {RANKED_FROM} {each}s" if fewest < RANKED_FROM else ""


def interval(estimate: Estimate) -> Interval | None:
    """Convert back from logarithms; None under five repeats."""
    if estimate.n < RANKED_FROM:
        return None
    centre = math.exp(estimate.mean)
    factor = math.exp(estimate.half_width())
    return Interval(value=centre, low=centre / factor, high=centre * factor, n=estimate.n, df=estimate.df)


def repeats_needed(parts: Sequence[WeightedStat]) -> int | None:
    """The repeats (of each part) with which four of five runs have an interval of +- 1 %; None above 1000.

    With n repeats each, the variance is ``V / n`` and the degrees of freedom are ``d (n - 1)``, with V and d from the
    parts. V is known from few repeats only, and will be drawn anew: the mean of n needs the upper 80 % bound of an F
    ratio, not its middle (Kupper and Hafner, The American Statistician 43, 1989). None also with sessions: more repeats
    of these cannot make up for more of them.
    """
    known = [(c, stat) for c, stat in parts if stat is not None and stat.std is not None and not stat.sessions]
    spreads = [(c * (stat.std or 0.0)) ** 2 * stat.inflation for c, stat in known]
    if not spreads or len(spreads) < len(parts):
        return None
    total = math.fsum(spreads)
    squares = math.fsum(spread * spread for spread in spreads)
    if squares == 0:  # also for negligible spreads
        return 2
    effective = total * total / squares
    measured = total * total / math.fsum(s * s / (stat.n - 1) for s, (_, stat) in zip(spreads, known, strict=True))
    wanted = math.log1p(_TARGET)

    def enough(n: int) -> bool:
        df = effective * (n - 1)
        largest = total * f_quantile(_ASSURANCE, df, measured)
        return t_quantile((1 + LEVEL) / 2, df) * math.sqrt(largest / n) <= wanted

    if not enough(_MOST_REPEATS):
        return None
    low, high = 1, _MOST_REPEATS  # low is too few, high is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def f_quantile(probability: float, numerator_df: float, denominator_df: float) -> float:
    """The quantile of the ratio of two variances, estimated with these degrees of freedom."""
    from scipy.special import fdtri

    return float(fdtri(numerator_df, denominator_df, probability))


def t_quantile(probability: float, df: float) -> float:
    """The quantile of Student's t distribution; of the normal distribution for infinite ``df``."""
    from scipy.special import ndtri, stdtrit  # heavy, and not needed for a report on one repeat

    return float(ndtri(probability) if math.isinf(df) else stdtrit(df, probability))


def t_tail(statistic: float, df: float, away: float = 0.0) -> float:
    """The probability of Student's t distribution above ``statistic``; noncentral if its mean is ``away`` from 0."""
    from scipy.special import nctdtr, ndtr, stdtr

    if not away and math.isfinite(df):
        return float(stdtr(df, -statistic))
    found = 1 - nctdtr(df, away, statistic) if math.isfinite(df) and abs(away) < _FAR else math.nan
    return float(ndtr(away - statistic) if math.isnan(found) else found)
