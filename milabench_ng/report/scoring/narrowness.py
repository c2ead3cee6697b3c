"""How well the figures that a profile is for are known, for runs that stop when that is well enough. Pure."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

import msgspec

from milabench_ng.records.ledger import LaunchKey
from milabench_ng.records.stopping import Widest
from milabench_ng.report.scoring.neighbours import cell_stats
from milabench_ng.report.statistics.intervals import LogStat, combine, log_stat
from milabench_ng.report.summary.summary import TestSummary


def widest(tests: Mapping[str, TestSummary]) -> Widest:
    """The figure that is known least: of the slowdowns in a study of neighbours, else of the tests' rates."""
    known = (Widest(figure, half_width(stat)) for figure, stat in figures(tests).items())
    return max(known, key=lambda one: math.inf if one.width is None else one.width, default=Widest("any test", None))


def figures(tests: Mapping[str, TestSummary]) -> dict[str, LogStat | None]:
    """The figures of these rows, in words."""
    cells = cell_stats(tests)
    if cells:
        return {f"the slowdown of {victim} in {row}": stat for (victim, row), stat in cells.items()}
    return {f"the rate of {label}": row.log_perf for label, row in tests.items()}


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
    return msgspec.structs.replace(row, launches=launches, repeats=repeats, log_perf=log_stat(list(repeats.values())))
