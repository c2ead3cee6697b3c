"""When launches were stopped: the averaging window ends with the stop, so a moved stop would choose the slices."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.records.record import Rank, Record
from milabench_ng.report.verification.evidence import Evidence

_LATE_S = 2.0
"""How late the stop may follow the last ``full``, and a worker's last slice the stop; honest runs take milliseconds."""
_EXACT_S = 0.05
"""``full`` is said when a slice ends."""


def moved_stops(evidence: Evidence) -> Iterator[str]:
    """Launches whose stop does not follow from their batch: it comes as soon as all ranks of all launches are full."""
    for batch in evidence.batches().values():
        if not all(kept.record.success for kept in batch):
            continue  # the stop of a batch follows a failure, too
        ranks = [(kept.name, rank) for kept in batch for rank in kept.record.mnb.ranks]
        yield from (f"{name}: rank {rank.rank} was never full" for name, rank in ranks if rank.full_s is None)
        last_s = max((rank.full_s or 0.0 for _, rank in ranks), default=0.0)
        for kept in batch:
            late_s = (kept.record.mnb.stop_s or 0.0) - last_s
            paused = any(mark.kind == "orchestrator paused" for mark in kept.record.mnb.marks)
            if late_s < 0 or (late_s > _LATE_S and not paused):
                yield f"{kept.name}: it was stopped {late_s:.1f} s after the last launch of its batch was full"
            for rank in kept.record.mnb.ranks:
                yield from (f"{kept.name}: rank {rank.rank} {why}" for why in _wrong_rank(kept.record, rank))


def _wrong_rank(record: Record, rank: Rank) -> Iterator[str]:
    mnb, full_s = record.mnb, rank.full_s
    if mnb.start_s is None or mnb.stop_s is None or full_s is None or not rank.slices:
        return
    wanted = mnb.launch.arguments.get("max_count")
    before = [row for row in rank.slices if row.end_s <= full_s + _EXACT_S]
    counted = sum(row.count for row in before)
    if not before or before[-1].end_s < full_s - _EXACT_S:
        yield "was full at a moment when none of its slices ended"
    if full_s - mnb.start_s < mnb.window_rule.total_s - _EXACT_S:
        yield f"was full {full_s - mnb.start_s:.1f} s after the start, too soon for a window"
    if isinstance(wanted, int) and counted < wanted:
        yield f"was full after {counted} items, {wanted} are its max_count"
    if rank.slices[-1].end_s < mnb.stop_s - _EXACT_S:
        yield "has no slices up to its stop"
    if rank.slices[-1].start_s > mnb.stop_s + _LATE_S:
        yield "has slices from long after its stop"
