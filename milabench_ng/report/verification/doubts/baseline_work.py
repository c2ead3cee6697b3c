"""Whether a row of results is of the same work as that of a baseline, so that their numbers can be compared."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.launch.traces import PACING
from milabench_ng.report.summary.summary import Summary, TestSummary
from milabench_ng.report.verification.evidence import Evidence


def known_rows(evidence: Evidence, label: str) -> Iterator[tuple[Summary, TestSummary]]:
    """The measured baselines of the same GPU whose test ``label`` did the same work, with its row."""
    row = evidence.summary.tests.get(label)
    for known in evidence.known:
        other = known.tests.get(label)
        if row is not None and other is not None and same_work(row, other):
            yield known, other


def same_work(row: TestSummary, other: TestSummary) -> bool:
    """Whether items, precision and options are the same, but for those that only say how long to work."""
    ours, theirs = ({name: value for name, value in one.options.items() if name not in PACING} for one in (row, other))
    return (row.unit, row.precision, ours) == (other.unit, other.precision, theirs)
