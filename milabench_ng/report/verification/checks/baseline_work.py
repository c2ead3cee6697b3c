"""Whether a row of results is of the same work as that of a baseline, so that their numbers can be compared."""

from __future__ import annotations

from milabench_ng.report.launch.traces import PACING
from milabench_ng.report.summary.summary import TestSummary


def same_work(row: TestSummary, other: TestSummary) -> bool:
    """Whether items, precision and options are the same, but for those that only say how long to work."""
    ours, theirs = ({name: value for name, value in one.options.items() if name not in PACING} for one in (row, other))
    return (row.unit, row.precision, ours) == (other.unit, other.precision, theirs)
