"""Slices as long as those of another launch: clocks count nanoseconds, so that no two slices are alike."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_ALIKE = 3
"""How many lengths in a row are no chance: two launches share a single one now and then."""


def _copied(evidence: Evidence) -> Iterator[str]:
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


DOUBT = Doubt(
    name="copied-slices",
    title="slice lengths copied from another launch",
    ask="ask which clock the node has, and for a witnessed run",
    look=_copied,
)
