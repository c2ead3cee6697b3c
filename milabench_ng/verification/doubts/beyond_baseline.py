"""Tests far from the measured baseline of the same GPU: much faster, with more items a step or in less memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_TIMES = {"gpu-compute": 1.5, "gpu-memory": 1.5}
"""How many times as fast a test may be, by what bounds it: libraries get faster, and hosts differ by more."""
_TIMES_OTHERS = 3.0
_ITEMS = 1.1
"""How many times as many items a step may have: faster nodes get to other batches. Two machines differed by 1e-5."""
_LESS_MEMORY = 2.0
"""How many times less memory a test may take: libraries get thriftier. Two machines differed by 0.05 %."""


def _beyond(evidence: Evidence) -> Iterator[str]:
    for label, row in evidence.summary.tests.items():
        for known, other in evidence.known_rows(label):
            yield from (f"{label}: {why} on {known.provenance.hardware}" for why in _odd(row, other))


def _odd(row: TestSummary, other: TestSummary) -> Iterator[str]:
    if row.train is not None and other.train is not None:
        most = _TIMES.get(other.work.bound or "", _TIMES_OTHERS)
        times = row.train.max / other.train.max if other.train.max else math.inf
        if times > most:
            yield (
                f"up to {row.train.max:.6g} {row.work.unit}/s, more than {most:g} x the {other.train.max:.6g} that "
                "were measured"
            )
    if row.items_per_step and other.items_per_step and row.items_per_step > other.items_per_step * _ITEMS:
        yield f"{row.items_per_step:.6g} {row.work.unit} a step, {other.items_per_step:.6g} of the same options"
    if 0 < row.peak_memory * _LESS_MEMORY < other.peak_memory and row.gpu_load:
        yield f"{row.peak_memory:,.0f} MiB at most, {other.peak_memory:,.0f} MiB of the same options"


DOUBT = Doubt(
    name="beyond-baseline",
    title="tests far from the measured baseline of the same GPU",
    ask="ask which library made the difference, and look for it in a delivery (mnb accept)",
    look=_beyond,
)
