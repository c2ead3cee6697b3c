"""Tests that ran alone: whoever makes them slower makes neighbours look cheap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from milabench_ng.report.scoring.neighbours import same_work
from milabench_ng.report.verification.evidence import Evidence

_REPEATS = 2.0
"""How many times as slow as its other repeats on the same device a launch may be."""
_OTHERS = 3
"""Repeats that say what is usual."""
_BESIDE = 1.25
"""How many times as fast as alone a test may be beside neighbours, over the pairs of a device and a repeat."""


def slow_alone(evidence: Evidence) -> Iterator[str]:
    """Launches alone far slower than others of the same test and device, and tests slower alone than in company.

    Launches with a mark are left out: it may say what made them slow, such as other programs.
    """
    rates = {label: _unmarked(evidence, label) for label in evidence.summary.tests}
    for label, alone in evidence.summary.tests.items():
        if alone.company != {}:
            continue
        yield from _slower_repeats(label, alone.unit, rates[label])
        for other, together in evidence.summary.tests.items():
            if same_work(alone, together):
                yield from _slower_than_beside(label, rates[label], other, rates[other])


def _unmarked(evidence: Evidence, label: str) -> dict[str, float]:
    """The rates of a test by job id."""
    own = (kept.record for kept in evidence.measured if kept.record.mnb.label == label)
    marked = {record.job_id for record in own if record.mnb.marks}
    return {job: rate for job, rate in evidence.summary.tests[label].launches.items() if job not in marked}


def _slower_repeats(label: str, unit: str, alone: Mapping[str, float]) -> Iterator[str]:
    for job, rate in alone.items():
        slot = job.partition(".")[2]
        others = [one for name, one in alone.items() if name != job and name.partition(".")[2] == slot]
        if len(others) >= _OTHERS and rate * _REPEATS < (usual := median(others)):
            yield f"{label} J{job}: alone it made {rate:.6g} {unit}/s, {usual:.6g} in other repeats of its device"


def _slower_than_beside(
    label: str, alone: Mapping[str, float], other: str, together: Mapping[str, float]
) -> Iterator[str]:
    pairs = [rate / alone[job] for job, rate in together.items() if alone.get(job)]
    if pairs and median(pairs) > _BESIDE:
        yield f"{label}: {other}, the same work beside neighbours, was {median(pairs):.2f} x as fast"
