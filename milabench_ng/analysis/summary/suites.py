"""The suites of a result. A profile may have tests of several, and each is scored by itself. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.summary.summary import Summary, suite_of_row


def by_suite(summary: Summary) -> tuple[Summary, ...]:
    """A summary for each suite, with its tests alone; ``summary`` itself if it has one."""
    return tuple(_part(summary, suite) for suite in summary.suites) or (summary,)


def parts_of(summary: Summary, suite: str) -> tuple[Summary, ...]:
    """What ``summary`` has of ``suite``: one summary, or none if that is another suite."""
    return tuple(part for part in by_suite(summary) if part.suite == suite)


def _part(summary: Summary, suite: str) -> Summary:
    """Unreadable files may have been of any suite: each has them all."""
    return msgspec.structs.replace(
        summary,
        suite=suite,
        suites=(),
        tests={label: row for label, row in summary.tests.items() if suite_of_row(label) == suite},
        omitted=tuple(label for label in summary.omitted if suite_of_row(label) == suite),
        unplanned={label: why for label, why in summary.unplanned.items() if suite_of_row(label) == suite},
    )
