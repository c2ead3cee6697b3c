"""How well the figure that a profile is for is known, for runs that stop when that is well enough. Pure."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

import msgspec

from milabench_ng.analysis.scoring.neighbours import PACKED, cell_stats, slowdowns, stat_by_repeat
from milabench_ng.analysis.statistics.intervals import LogStat, combine
from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.records.ledger import LaunchKey
from milabench_ng.records.stopping import Headline


def headline(tests: Mapping[str, TestSummary]) -> Headline:
    """What is known of the figure that these rows are for.

    In a study of neighbours, that is their cost, or the mean slowdown where no victim was packed; else the mean rate.
    All tests count alike, whatever weights a report gives them later. Its interval rests on the means of the repeats,
    since what a repeat has in common moves all its tests.
    """
    if found := cell_stats(tests):
        cells = slowdowns(tests)
        packed = [cell.by_repeat for cell in cells if cell.beside == PACKED]
        known = stat_by_repeat(packed or [cell.by_repeat for cell in cells]) if all(found.values()) else None
        return _headline("the cost of neighbors" if packed else "the mean slowdown", known)
    rates = [{repeat: math.log(rate) for repeat, rate in row.repeats.items() if rate > 0} for row in tests.values()]
    return _headline("the mean rate", stat_by_repeat(rates))


def _headline(figure: str, stat: LogStat | None) -> Headline:
    return Headline(figure, half_width(stat), stat.n if stat else 0)


def half_width(stat: LogStat | None) -> float | None:
    """Half the 95 % interval, as a fraction of the value; None if there is no interval."""
    estimate = combine([(1.0, stat)])
    return None if estimate is None else math.expm1(estimate.half_width())


def as_of(tests: Mapping[str, TestSummary], done: Container[LaunchKey]) -> dict[str, TestSummary]:
    """The rows of a run of one session when only the launches in ``done`` had their records."""
    return {label: _row_as_of(label, row, done) for label, row in tests.items()}


def _row_as_of(label: str, row: TestSummary, done: Container[LaunchKey]) -> TestSummary:
    later = {job for job in row.launches if (label, job) not in done}
    begun = {job.partition(".")[0] for job in later}
    repeats = {repeat: rate for repeat, rate in row.repeats.items() if repeat not in begun}
    launches = {job: rate for job, rate in row.launches.items() if job not in later}
    return msgspec.structs.replace(row, launches=launches, repeats=repeats)
