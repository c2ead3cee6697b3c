"""A rate of a shipped baseline under another date: clocks count nanoseconds, so that two runs never agree so well."""

from __future__ import annotations

import math
from collections.abc import Iterator

from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_SAME = 1e-9
"""Of a rate."""


def _taken_over(evidence: Evidence) -> Iterator[str]:
    for label, row in evidence.summary.tests.items():
        for known, other in evidence.known_rows(label):
            if row.train is None or other.train is None or None in (row.started_utc, other.started_utc):
                continue
            alike = math.isclose(row.train.mean, other.train.mean, rel_tol=_SAME)
            if row.started_utc != other.started_utc and alike:
                source = known.provenance.source
                yield f"{label}: its rate is that of {source}, to the last digit, and it began at another time"


DOUBT = Doubt(
    name="shipped-rate",
    title="rates identical to a shipped baseline",
    ask="ask for a run with a nonce of yours",
    look=_taken_over,
)
