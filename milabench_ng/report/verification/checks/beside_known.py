"""Tests beside the measured baseline of the same GPU: further from it than machines are, or not apart from it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from milabench_ng.report.summary.summary import Summary, TestSummary
from milabench_ng.report.verification.checks.baseline_work import known_rows
from milabench_ng.report.verification.evidence import Evidence

_TIMES = {"gpu-compute": 1.5, "gpu-memory": 1.5}
"""How many times as fast a test may be, by what bounds it. Libraries get faster; where the host sets the pace, hosts
differ by more."""
_TIMES_OTHERS = 3.0
_ITEMS = 1.1
"""How many times as many items a step may have: faster nodes get to other batches. Two machines differed by 1e-5."""
_LESS_MEMORY = 2.0
"""How many times less memory a test may take: libraries get thriftier. Two machines differed by 0.05 %."""
_SAME = 1e-9
"""Of a rate: clocks count nanoseconds, so that two runs never agree so well."""


def beside_known(evidence: Evidence) -> Iterator[str]:
    """Rates, items a step and memory that the baseline's machine does not make likely, and rates that are its own."""
    for label, row in evidence.summary.tests.items():
        for known, other in known_rows(evidence, label):
            yield from (f"{label}: {why} on {known.provenance.hardware}" for why in _odd(row, other))
            yield from _taken_over(label, row, other, known)


def _odd(row: TestSummary, other: TestSummary) -> Iterator[str]:
    if row.train is not None and other.train is not None:
        most = _TIMES.get(other.bound or "", _TIMES_OTHERS)
        times = row.train.max / other.train.max if other.train.max else math.inf
        if times > most:
            yield (
                f"up to {row.train.max:.6g} {row.unit}/s, more than {most:g} x the {other.train.max:.6g} that were "
                "measured"
            )
    if row.items_per_step and other.items_per_step and row.items_per_step > other.items_per_step * _ITEMS:
        yield f"{row.items_per_step:.6g} {row.unit} a step, {other.items_per_step:.6g} of the same options"
    if 0 < row.peak_memory * _LESS_MEMORY < other.peak_memory and row.gpu_load:
        yield f"{row.peak_memory:,.0f} MiB at most, {other.peak_memory:,.0f} MiB of the same options"


def _taken_over(label: str, row: TestSummary, other: TestSummary, known: Summary) -> Iterator[str]:
    """A rate of the shipped baseline under another date."""
    if row.train is None or other.train is None or None in (row.started_utc, other.started_utc):
        return
    if row.started_utc != other.started_utc and math.isclose(row.train.mean, other.train.mean, rel_tol=_SAME):
        yield f"{label}: its rate is that of {known.provenance.source}, to the last digit, and it began at another time"
