"""When launches were stopped: the averaging window ends with the stop, so a moved stop would choose the slices."""

from __future__ import annotations

import math
from collections.abc import Iterator

from milabench_ng.records.record import Mnb, Rank, Record
from milabench_ng.records.window import first_full
from milabench_ng.report.verification.evidence import Evidence

_LATE_S = 3.5
"""How late the stop may follow the last ``full``, and a worker's last slice the stop: honest runs take milliseconds. An
orchestrator that stood still for less has no mark of it."""
_STEPS_TO_AGREE = 10
"""Ranks stop at a step that none of them has reached: eight steps on (`bench.channel`), beyond the two in flight."""
_EXACT_S = 0.05
"""``full`` is said when a slice ends."""


def moved_stops(evidence: Evidence) -> Iterator[str]:
    """Launches whose stop does not follow from their batch: it comes as soon as all ranks of all launches are full."""
    planned = {batch.number: len(batch.launches) for batch in evidence.manifest.plan.batches}
    for (number, _), batch in evidence.batches().items():
        good = [kept for kept in batch if kept.record.success]
        moments = [rank.full_s for kept in good for rank in kept.record.mnb.ranks]
        last_s = max((moment for moment in moments if moment is not None), default=0.0)
        # The stop also follows a failure, company of a launch that is tried again, and max_seconds.
        whole = None not in moments and len(good) == planned.get(number)
        for kept in good:
            latest_s = _LATE_S + _paused_s(kept.record) if whole else math.inf
            late_s = (kept.record.mnb.stop_s or 0.0) - last_s
            if not (0 if whole else -_LATE_S) <= late_s <= latest_s:
                yield f"{kept.name}: it was stopped {late_s:.1f} s after the last launch of its batch was full"
            for rank in kept.record.mnb.ranks:
                yield from (f"{kept.name}: rank {rank.rank} {why}" for why in _wrong_rank(kept.record, rank))


def _paused_s(record: Record) -> float:
    """How long the orchestrator stood still, as the record's mark says."""
    return sum(mark.value or 0.0 for mark in record.mnb.marks if mark.kind == "orchestrator paused")


def _wrong_rank(record: Record, rank: Rank) -> Iterator[str]:
    mnb = record.mnb
    if mnb.start_s is None or mnb.stop_s is None or not rank.slices:
        return
    if rank.slices[-1].end_s < mnb.stop_s - _EXACT_S:
        yield "has no slices up to its stop"
    step_s = max(row.length_s / max(1, row.steps) for row in rank.slices)
    if rank.slices[-1].start_s > mnb.stop_s + _LATE_S + _STEPS_TO_AGREE * step_s:
        yield "has slices from long after its stop"
    yield from _wrongly_full(mnb, rank, mnb.start_s, mnb.stop_s)


def _wrongly_full(mnb: Mnb, rank: Rank, start_s: float, stop_s: float) -> Iterator[str]:
    full_s, wanted, seconds = rank.full_s, *(mnb.launch.arguments.get(name) for name in ("max_count", "max_seconds"))
    first_s = first_full(rank.slices, start_s, mnb.window_rule, wanted if isinstance(wanted, int) else 0)
    if full_s is None:
        if not isinstance(seconds, int | float) or stop_s - start_s < seconds - _EXACT_S:
            yield "was never full"
        elif first_s is not None and first_s < stop_s - _EXACT_S:
            yield f"was full {first_s - start_s:.1f} s after the start, by its slices, and did not say so"
        return
    if first_s is None or abs(first_s - full_s) > _EXACT_S:
        was = "it never was" if first_s is None else f"it was after {first_s - start_s:.1f} s"
        yield f"said that it was full {full_s - start_s:.1f} s after the start; by its slices, {was}"
    before = [row for row in rank.slices if row.end_s <= full_s + _EXACT_S]
    counted = sum(row.count for row in before)
    if not before or before[-1].end_s < full_s - _EXACT_S:
        yield "was full at a moment when none of its slices ended"
    if full_s - start_s < mnb.window_rule.total_s - _EXACT_S:
        yield f"was full {full_s - start_s:.1f} s after the start, too soon for a window"
    if isinstance(wanted, int) and counted < wanted:
        yield f"was full after {counted} items, {wanted} are its max_count"
