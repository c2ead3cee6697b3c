"""Ranks of a launch over several devices: each has its slices, and they work in step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench_ng.records.window import SliceRow
from milabench_ng.verification.evidence import Evidence

STEPS_TO_AGREE = 10
"""Ranks stop at a step that none of them has reached: eight steps on (`bench.channel`), beyond the two in flight."""


def missing_ranks(evidence: Evidence) -> Iterator[str]:
    """Launches that succeeded without the slices of each rank, or whose ranks were not in step.

    A rate is the least of its ranks, so a rank that was taken out would make a launch faster.
    """
    for kept in evidence.good:
        mnb = kept.record.mnb
        known, wanted = [rank.rank for rank in mnb.ranks], len(mnb.launch.slot_ids)
        if sorted(known) != list(range(wanted)):
            yield f"{kept.name}: it has slices of {len(known)} ranks ({known}), and ran on {wanted}"
        if mnb.launch.workload in evidence.declared:
            yield from (f"{kept.name}: {why}" for why in _out_of_step([rank.slices for rank in mnb.ranks]))


def _out_of_step(ranks: Sequence[Sequence[SliceRow]]) -> Iterator[str]:
    """Steps are compared at the last moment that all slices reach: what is too short for a slice is in none."""
    if not ranks or not all(ranks):
        return
    last_s = min(rows[-1].end_s for rows in ranks)
    least = [sum(row.steps for row in rows if row.end_s <= last_s) for rows in ranks]
    most = [sum(row.steps for row in rows if row.start_s < last_s) for rows in ranks]
    if max(least) - min(most) > STEPS_TO_AGREE:
        yield f"its ranks had made {least} steps when the first of them ended, though they work in step"
