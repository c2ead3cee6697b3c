"""Counts optimizer steps that a loss scale skipped, in all and after settling. Pure."""

from __future__ import annotations

from milabench_ng.records.record import Skipped
from milabench_ng.records.window import WindowRule, settled_since
from milabench_ng.run.execution.tenant import RankLog


def skipped(rank: RankLog, start_s: float | None, rule: WindowRule) -> Skipped | None:
    """What a rank that began at ``start_s`` skipped; None if it did not report it."""
    if not rank.skips or start_s is None:
        return None
    settled_s = settled_since(rank.slices, start_s, rule)
    before = min(sum(row.start_s < settled_s for row in rank.slices), len(rank.skips))
    steps, skipped = (rank.skips[before - 1].steps, rank.skips[before - 1].skipped) if before else (0, 0)
    last = rank.skips[-1]
    return Skipped(
        steps=last.steps,
        skipped=last.skipped,
        settled_steps=last.steps - steps,
        settled_skipped=last.skipped - skipped,
    )
