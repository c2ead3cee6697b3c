"""Confidence intervals. Pure.

What is repeated is the repeat: launches at the same moment share the node's state, and slices of one launch share
everything, so neither counts as a measurement of its own (Kalibera and Jones, "Rigorous benchmarking in reasonable
time", ISMM 2013). Everything is done with natural logarithms, where a ratio is a difference and a weighted geometric
mean is a weighted sum. Variances of the parts of a sum may differ: degrees of freedom after Satterthwaite (Biometrics
Bulletin 2, 1946) as Welch (Biometrika 34, 1947) uses them. ``scripts/simulate-intervals`` shows what they cover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec

from milabench_ng.records.window import SMALLEST
from milabench_ng.stats import mean

LEVEL = 0.95
"""The probability with which an interval holds the true value."""

_TARGET = 0.01
_MOST_REPEATS = 1000


class LogStat(msgspec.Struct, frozen=True):
    """Natural logarithms of a test's rate, one for each repeat."""

    n: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    mean: Annotated[float, msgspec.Meta(ge=-35, le=35)]
    """Between those of the smallest and of the largest rate, some 34.5."""
    std: Annotated[float, msgspec.Meta(ge=0, le=50)] | None
    """Sample standard deviation (divisor n - 1); None of one repeat. Of the two farthest rates it is 48.8."""

    def __post_init__(self) -> None:
        if (self.n == 1) != (self.std is None):
            raise ValueError(f"{self.n} repeats with {'no' if self.std is None else 'a'} standard deviation")

    def shifted(self, factor: float) -> LogStat:
        """Of rates that are ``factor`` times as large."""
        return LogStat(self.n, self.mean + math.log(factor), self.std)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A weighted sum of mean logarithms and how well it is known."""

    mean: float
    variance: float
    """Of ``mean``."""
    df: float
    """Degrees of freedom of ``variance``; infinite where nothing varied."""
    n: int
    """The fewest repeats behind any of its parts."""

    def half_width(self, level: float = LEVEL) -> float:
        """Half the width of the interval, in logarithms."""
        return t_quantile((1 + level) / 2, self.df) * math.sqrt(self.variance) if self.variance else 0.0


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A value and the interval that holds the true one with probability ``level``."""

    value: float
    low: float
    high: float
    n: int
    """The fewest repeats behind it."""
    df: float
    level: float = LEVEL

    def scaled(self, factor: float) -> Interval:
        """In a unit that is ``factor`` times as fine."""
        return msgspec.structs.replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @property
    def inverse(self) -> Interval:
        """Of one over the value: a price over a score has the interval of the score, turned over."""
        return msgspec.structs.replace(self, value=1 / self.value, low=1 / self.high, high=1 / self.low)


WeightedStat = tuple[float, LogStat | None]
"""A coefficient, and what it is the coefficient of."""


def log_stat(values: Sequence[float]) -> LogStat | None:
    """Of the rates of several repeats; None where there is none, or where one was not above 0."""
    if not values or min(values) < SMALLEST:
        return None
    logs = [math.log(value) for value in values]
    centre = mean(logs)
    if len(logs) == 1:
        return LogStat(1, centre, None)
    return LogStat(len(logs), centre, math.sqrt(math.fsum((log - centre) ** 2 for log in logs) / (len(logs) - 1)))


def combine(parts: Sequence[WeightedStat]) -> Estimate | None:
    """``sum(c * mean)`` of independent parts; None where one of them was not repeated, see `why_none`."""
    known = [(c, stat.n, stat.mean, stat.std) for c, stat in parts if stat is not None and stat.std is not None]
    if not known or len(known) < len(parts):
        return None
    terms = [(c * c * std * std / n, n - 1) for c, n, _, std in known if std is not None]
    variance = math.fsum(term for term, _ in terms)
    denominator = math.fsum(term * term / df for term, df in terms)
    return Estimate(
        mean=math.fsum(c * centre for c, _, centre, _ in known),
        variance=variance,
        df=variance * variance / denominator if denominator > 0 else math.inf,
        n=min(n for _, n, _, _ in known),
    )


def why_none(parts: Sequence[WeightedStat]) -> str:
    """Why there is no interval of these parts; empty where there is one."""
    if not parts:
        return "nothing was measured"
    if any(stat is None for _, stat in parts):
        return "no repeats are recorded"
    return "one repeat" if any(stat is not None and stat.n < 2 for _, stat in parts) else ""


def interval(estimate: Estimate, value: float | None = None) -> Interval:
    """Back from logarithms; around ``value`` where the number that is shown is another one than ``exp(mean)``."""
    centre = math.exp(estimate.mean) if value is None else value
    factor = math.exp(estimate.half_width())
    return Interval(value=centre, low=centre / factor, high=centre * factor, n=estimate.n, df=estimate.df)


def repeats_needed(parts: Sequence[WeightedStat]) -> int | None:
    """How many repeats (of each part) an interval of +- 1 % takes at the spread that was seen; None above 1000.

    With n repeats each the variance is ``V / n`` and the degrees of freedom ``d (n - 1)``, with V and d from the parts.
    """
    spreads = [(c * stat.std) ** 2 for c, stat in parts if stat is not None and stat.std is not None]
    if not spreads or len(spreads) < len(parts):
        return None
    total = math.fsum(spreads)
    squares = math.fsum(spread * spread for spread in spreads)
    if squares == 0:  # of spreads next to nothing, too
        return 2
    effective = total * total / squares
    wanted = math.log1p(_TARGET)

    def enough(n: int) -> bool:
        return t_quantile((1 + LEVEL) / 2, effective * (n - 1)) * math.sqrt(total / n) <= wanted

    if not enough(_MOST_REPEATS):
        return None
    low, high = 1, _MOST_REPEATS  # low is too few, high is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def t_quantile(probability: float, df: float) -> float:
    """Of Student's t distribution; the normal one's for infinite ``df``."""
    from scipy.special import ndtri, stdtrit  # heavy, and not needed for a report on one repeat

    return float(ndtri(probability) if math.isinf(df) else stdtrit(df, probability))


def t_tail(statistic: float, df: float) -> float:
    """The probability of Student's t distribution above ``statistic``."""
    from scipy.special import ndtr, stdtr

    return float(ndtr(-statistic) if math.isinf(df) else stdtr(df, -statistic))
