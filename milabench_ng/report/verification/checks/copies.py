"""Launches whose slices were taken from another launch: clocks count nanoseconds, so that no two slices are alike."""

from __future__ import annotations

import math
from collections.abc import Iterator

from milabench_ng.grouping import grouped
from milabench_ng.records.record import Record
from milabench_ng.report.verification.checks.noisy_copies import noisy_copies
from milabench_ng.report.verification.evidence import Evidence

_ALIKE = 3
"""How many lengths in a row are no chance: two launches share a single one now and then."""


def copied_slices(evidence: Evidence) -> Iterator[str]:
    """Launches that share the lengths of slices with another one or with themselves, or nearly all of them."""
    seen: dict[tuple[float, ...], str] = {}
    for name, record in evidence.named():
        for rank in record.mnb.ranks:
            lengths = [row.length_s for row in rank.slices]
            runs = [tuple(lengths[at : at + _ALIKE]) for at in range(len(lengths) - _ALIKE + 1)]
            other = next((seen[run] for run in runs if run in seen), None)
            if other is None and len(set(runs)) < len(runs):
                other = "its own"
            if other is not None:
                yield f"{name}: rank {rank.rank} has slices of the same lengths as {other}, to the nanosecond"
            seen |= dict.fromkeys(runs, name)
    yield from _with_noise(evidence)


def _with_noise(evidence: Evidence) -> Iterator[str]:
    """Launches of a test whose slices are those of another one with a little noise."""
    for launches in grouped(evidence.good, lambda kept: kept.record.mnb.label).values():
        for name, source in noisy_copies((kept.name, _times(kept.record)) for kept in launches):
            yield f"{name}: its slices are those of {source}, with a little noise"


def _times(record: Record) -> list[float]:
    """Logarithms of seconds a step, of the first rank's slices."""
    return [math.log(row.length_s / row.steps) for row in record.mnb.ranks[0].slices if row.steps and row.length_s > 0]
