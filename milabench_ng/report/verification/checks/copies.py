"""Launches whose slices were taken from another launch: clocks count nanoseconds, so that no two slices are alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from milabench_ng.grouping import grouped
from milabench_ng.records.record import Record
from milabench_ng.report.verification.evidence import Evidence

_ALIKE = 3
"""How many lengths in a row are no chance: two launches share a single one now and then."""
_FEWEST = 8
_JITTER = 3e-5
"""Relative difference of slices that copies with added noise have: launches of their own differ by 1e-4 and more."""
_OF_SPREAD = 0.1
"""And how much less that is than the spread of the slices."""
_OF_WIDE_SPREAD = 0.004
"""Or how much less whatever it is: sentences of the same lengths in two runs come down to 0.015."""


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
        known = [(kept.name, times) for kept in launches if len(times := _times(kept.record)) >= _FEWEST]
        spreads = {name: _spread(times) for name, times in known}
        for (one, ours), (other, theirs) in combinations(known, 2):
            if one != other and _alike(ours, theirs, spreads[one] + spreads[other]):
                yield f"{other}: its slices are those of {one}, with a little noise"


def _times(record: Record) -> list[float]:
    """Logarithms of seconds a step, of the first rank's slices."""
    return [math.log(row.length_s / row.steps) for row in record.mnb.ranks[0].slices if row.steps and row.length_s > 0]


def _alike(ours: Sequence[float], theirs: Sequence[float], spread: float) -> bool:
    """Whether two launches rise and fall together, from the first or to the last slice."""
    size = min(len(ours), len(theirs))
    differences = (zip(ours, theirs, strict=False), zip(ours[-size:], theirs[-size:], strict=True))
    apart = min(_spread([one - other for one, other in pairs]) for pairs in differences)
    return apart < _OF_WIDE_SPREAD * spread or (apart < _JITTER and apart < _OF_SPREAD * spread)


def _spread(values: Sequence[float]) -> float:
    """The median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)
