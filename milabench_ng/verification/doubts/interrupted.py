"""Batches that were interrupted: what is measured again after it costs nothing, so slow ones could be left out."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_USUAL = 2
"""Each interruption ends a session, and few runs are begun more often than three times."""


def _interrupted(evidence: Evidence) -> Iterator[str]:
    batches = evidence.batches().values()
    failures = [[kept.record.mnb.failure for kept in batch] for batch in batches]
    cut = sum(any(failure is not None and failure.cause == "interrupted" for failure in batch) for batch in failures)
    if cut > _USUAL:
        yield f"{cut} of {len(batches)} launch groups were interrupted"


DOUBT = Doubt(
    name="interrupted",
    title="more than two interrupted launch groups",
    ask="ask who stopped the run and why, or for a run without a stop",
    look=_interrupted,
)
