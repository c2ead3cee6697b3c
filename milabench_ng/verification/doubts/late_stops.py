"""Stops that follow the last full launch late: the window ends with the stop, so a moved stop chooses the slices."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.verification.checks.stops import late_stops
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_LATE_S = 0.5
"""Honest runs take 0.001 s, and 0.03 s beside four busy loops on two CPUs."""
_FEW = 0.05
"""The share of batches that may be late without a word: an orchestrator may be kept waiting."""


def _late(evidence: Evidence) -> Iterator[str]:
    found = [
        (
            kept.record.mnb.batch,
            f"{kept.name}: it was stopped {late_s:.1f} s after the last launch of its launch group was full",
        )
        for kept, late_s, whole in late_stops(evidence)
        if whole and late_s > _LATE_S
    ]
    if len({batch for batch, _ in found}) > max(1, _FEW * len(evidence.batches())):
        yield from (text for _, text in found)


DOUBT = Doubt(
    name="late-stops",
    title="launch groups stopped late",
    ask="ask what kept mnb waiting, and for events.jsonl",
    look=_late,
)
