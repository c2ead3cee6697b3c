"""Ranks of a launch over several devices: each has its slices, and they work in step."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.verification.evidence import Evidence

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
        steps = [sum(row.steps for row in rank.slices) for rank in mnb.ranks]
        if mnb.launch.workload in evidence.declared and max(steps, default=0) - min(steps, default=0) > STEPS_TO_AGREE:
            yield f"{kept.name}: its ranks made {steps} steps, though they work in step"
