"""A statistic over repeats, its bias and its spread, by leaving one repeat out at a time. Pure.

With R repeats, the pseudo-value of one is ``R theta - (R - 1) theta_without_it``. Their mean has no bias of order 1/R
(Quenouille, Biometrika 43, 1956), and their spread is that of independent measurements (Tukey, Ann. Math. Statist. 29,
1958): t with R - 1 degrees of freedom. For a mean they are the repeats themselves. A session with m of the R repeats
counts with ``R / m`` in place of R, and in their mean with ``m / R`` (Busing, Meijer and van der Leeden, Statistics and
Computing 9, 1999).

Weighted sums over tests add up repeat by repeat, so what a repeat's tests have in common (the node's temperature, a
neighbour) is in the spread of the sum. A test that lacks a repeat has its own mean as the pseudo-value there. With
three sessions or more, whole sessions are left out instead of repeats.
``scripts/simulate-decisions`` shows the coverage of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from milabench_ng.analysis.statistics.intervals import SESSIONS_FROM, LogStat, by_session, stat_of_logs
from milabench_ng.analysis.statistics.slow_repeats import usual
from milabench_ng.model.bounds import SMALLEST
from milabench_ng.model.grouping import grouped


class Jackknife(msgspec.Struct, frozen=True):
    """The logarithm of a statistic."""

    whole: float
    """Over all repeats."""
    without: dict[str, float]
    """Without one of at least two repeats, by its name; without one session, if there are enough of these."""
    sizes: dict[str, int]
    """How many repeats each of these left out."""
    by_session: bool = False
    moved: float = 0.0
    """How far slow repeats move it."""

    @property
    def repeats(self) -> int:
        """How many there are."""
        return sum(self.sizes.values())

    def pseudo_values(self, groups: Sequence[str]) -> list[float]:
        """One for each of ``groups``: names of repeats or sessions, which include its own."""
        scale = (len(groups) - 1) / (len(self.sizes) - 1)
        return [self.whole + scale * self._shift(each) for each in groups]

    def _shift(self, name: str) -> float:
        """A pseudo-value's distance from the whole; 0 for what it has not got."""
        if name not in self.sizes:
            return 0.0
        return (self.repeats / self.sizes[name] - 1) * (self.whole - self.without[name])


def jackknife(
    rates: Mapping[str, float], statistic: Callable[[Sequence[float]], float], sessions: Mapping[str, int]
) -> Jackknife | None:
    """The statistic of the repeats' rates; None for one repeat, or if it has no logarithm over any of these sets.

    ``sessions`` has the session of each repeat; it may be empty if there is only one.
    """
    if len(rates) < 2 or min(rates.values()) < SMALLEST:
        return None
    groups = grouped(rates, lambda repeat: str(sessions.get(repeat, 1)))
    by_session = len(groups) >= SESSIONS_FROM
    left_out = groups if by_session else {repeat: [repeat] for repeat in rates}
    whole = statistic(list(rates.values()))
    without = {
        name: statistic([rate for repeat, rate in rates.items() if repeat not in group])
        for name, group in left_out.items()
    }
    if min(whole, *without.values()) < SMALLEST:
        return None
    sizes = {name: len(group) for name, group in left_out.items()}
    logs = {each: math.log(without[each]) for each in without}
    every = list(rates.values())
    kept = usual([math.log(rate) for rate in every])
    others = whole if len(kept) == len(every) else statistic([every[place] for place in kept])
    return Jackknife(math.log(whole), logs, sizes, by_session, abs(math.log(max(others, SMALLEST) / whole)))


def sum_by_group(terms: Sequence[tuple[float, Jackknife]]) -> list[LogStat]:
    """The sums of ``coefficient * statistic``: of those by repeat, and of those by session, if there are any."""
    kinds = grouped(terms, lambda term: term[1].by_session)
    return [_summed(same) for same in kinds.values()]


def _summed(terms: Sequence[tuple[float, Jackknife]]) -> LogStat:
    groups = sorted({each for _, term in terms for each in term.without}, key=in_order)
    columns = [(coefficient, term.pseudo_values(groups)) for coefficient, term in terms]
    logs = [math.fsum(coefficient * values[place] for coefficient, values in columns) for place in range(len(groups))]
    found = stat_of_logs(logs)
    most = max(found.moved, math.fsum(abs(coefficient) * term.moved for coefficient, term in terms))
    if terms[0][1].by_session:
        return by_session(found, min(term.repeats for _, term in terms), most)
    return msgspec.structs.replace(found, moved=most)


def in_order(repeat: str) -> tuple[str, int, str]:
    """The sort key of a repeat's name: those of a folder's second run are ``0#2``, ``1#2``; ``10`` is after ``9``."""
    number, _, run = repeat.partition("#")
    return run, len(number), number
