"""Contradictions in a stored summary: `mnb` never writes such a file, so that nothing in it can be trusted. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.statistics.intervals import LogStat, session_stat
from milabench_ng.analysis.summary.summary import OriginKind, Summary, TestSummary, suite_of_row
from milabench_ng.model.bounds import SMALLEST

_ALIKE = 1e-6
"""Tolerance between logarithms of the same numbers."""


def contradictions(summary: Summary) -> Iterator[str]:
    """The contradictions in words, by row."""
    yield from _of_suites(summary)
    for label, row in summary.tests.items():
        for why in (_as_if_measured(summary.origin(label), row), _of_other_repeats(row), _too_small(row)):
            if why:
                yield f"{label}: {why}"


def _of_suites(summary: Summary) -> Iterator[str]:
    """Of several suites, each has tests, and each test is of one of them."""
    if not summary.suites:
        return
    of = {label: suite_of_row(label) for label in summary.tests}
    yield from (f"{label}: of none of its suites" for label, suite in of.items() if suite not in summary.suites)
    empty = {*summary.suites} - {*of.values()}
    yield from (f"it has no test of {suite}" for suite in sorted(empty))


def _as_if_measured(origin: OriginKind, row: TestSummary) -> str:
    """An estimate has a value with a band, not measured rates."""
    if origin != "estimated" or (row.train is None and row.log_perf is None):
        return ""
    return "it is called an estimate, but it has measured rates (train, log_perf)"


def _of_other_repeats(row: TestSummary) -> str:
    """The basis of the intervals must follow from the recorded repeats."""
    if row.log_perf is None or not row.repeats:
        return ""
    expected = session_stat(row.repeats, row.sessions)
    if expected is not None and _alike(row.log_perf, expected):
        return ""
    return f"its log_perf is {_text(row.log_perf)}, and its repeats make it {_text(expected)}"


def _alike(one: LogStat, other: LogStat) -> bool:
    return (
        (one.n, one.sessions) == (other.n, other.sessions)
        and abs(one.mean - other.mean) <= _ALIKE
        and abs((one.std or 0.0) - (other.std or 0.0)) <= _ALIKE
    )


def _text(stat: LogStat | None) -> str:
    if stat is None:
        return "nothing"
    return f"{stat.mean:.6f} of {stat.n}" + ("" if stat.std is None else f" +- {stat.std:.6f}")


def _too_small(row: TestSummary) -> str:
    """Rates so small that their logarithms and ratios overflow."""
    rates = [*row.launches.values(), *row.repeats.values(), *row.ranks.values()]
    rates += [row.train.mean] if row.train else []
    rates += [row.estimate.value] if row.estimate else []
    small = [rate for rate in rates if 0 < rate < SMALLEST]
    return f"impossible rate: {small[0]:.3g} items/s" if small else ""
