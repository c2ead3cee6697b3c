"""A statistic over repeats, its bias and its spread, by leaving one repeat out at a time. Pure.

With R repeats, the pseudo-value of one is ``R theta - (R - 1) theta_without_it``. Their mean has no bias of order 1/R
(Quenouille, Biometrika 43, 1956), and their spread is that of independent measurements (Tukey, Ann. Math. Statist. 29,
1958): t with R - 1 degrees of freedom. For a mean they are the repeats themselves.

Weighted sums over tests add up repeat by repeat, so what a repeat's tests have in common (the node's temperature, a
neighbour) is in the spread of the sum. A test that lacks a repeat has its own mean as the pseudo-value there.
``scripts/simulate-decisions`` shows the coverage of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from milabench_ng.records.window import SMALLEST
from milabench_ng.report.statistics.intervals import LogStat, stat_of_logs
from milabench_ng.stats import mean


class Jackknife(msgspec.Struct, frozen=True):
    """The logarithm of a statistic."""

    whole: float
    """Over all repeats."""
    without: dict[str, float]
    """Without one of at least two repeats, by its name."""

    def pseudo_values(self, repeats: Sequence[str]) -> list[float]:
        """One for each of ``repeats``, which include its own."""
        n = len(repeats)
        return [n * self.whole - (n - 1) * self.without.get(repeat, self.whole) for repeat in repeats]

    @property
    def corrected(self) -> float:
        """The statistic itself, not its logarithm, without the bias of few repeats."""
        return math.exp(mean(self.pseudo_values(list(self.without))))


def jackknife(rates: Mapping[str, float], statistic: Callable[[Sequence[float]], float]) -> Jackknife | None:
    """The statistic of the repeats' rates; None for one repeat, or if it has no logarithm over any of these sets."""
    sets = [list(rates.values()), *([rates[each] for each in rates if each != one] for one in rates)]
    if len(rates) < 2 or min(rates.values()) < SMALLEST or min(found := [statistic(each) for each in sets]) < SMALLEST:
        return None
    whole, *without = map(math.log, found)
    return Jackknife(whole, dict(zip(rates, without, strict=True)))


def sum_by_repeat(terms: Sequence[tuple[float, Jackknife]]) -> LogStat:
    """The sum of ``coefficient * statistic``, one value for each repeat of any of them."""
    repeats = sorted({repeat for _, each in terms for repeat in each.without}, key=in_order)
    columns = [(coefficient, each.pseudo_values(repeats)) for coefficient, each in terms]
    return stat_of_logs(
        [math.fsum(coefficient * values[place] for coefficient, values in columns) for place in range(len(repeats))]
    )


def in_order(repeat: str) -> tuple[str, int, str]:
    """The sort key of a repeat's name: those of a folder's second run are ``0#2``, ``1#2``; ``10`` is after ``9``."""
    number, _, run = repeat.partition("#")
    return run, len(number), number
