"""A rate of a shipped baseline under another date: clocks count nanoseconds, so that two runs never agree so well."""

from __future__ import annotations

import math
from collections.abc import Iterator

from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_SAME = 1e-9
"""Of a rate."""


def shipped_fact(evidence: Evidence) -> str:
    """What is told of a run of which a shipped baseline is made; empty for any other."""
    sources = dict.fromkeys(source for _, source, same_time in _alike(evidence) if same_time)
    return f"the baseline from {' and '.join(sources)} is made of this run: anybody can download it" if sources else ""


def _taken_over(evidence: Evidence) -> Iterator[str]:
    for label, source, same_time in _alike(evidence):
        if not same_time:
            yield f"{label}: its rate is that of {source}, to the last digit, and it began at another time"


def _alike(evidence: Evidence) -> Iterator[tuple[str, str, bool]]:
    """The tests with the rate of a shipped baseline: the test, where that is from, and whether both began at once."""
    for label, row in evidence.summary.tests.items():
        for known, other in evidence.known_rows(label):
            if row.train is None or other.train is None or None in (row.started_utc, other.started_utc):
                continue
            if math.isclose(row.train.mean, other.train.mean, rel_tol=_SAME):
                yield label, known.provenance.source, row.started_utc == other.started_utc


DOUBT = Doubt(
    name="shipped-rate",
    title="rates identical to a shipped baseline, under other dates",
    ask="ask for a run with a nonce of yours",
    look=_taken_over,
)
