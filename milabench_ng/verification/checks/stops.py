"""When launches were stopped: the averaging window ends with the stop, so a moved stop would choose the slices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.record import Mnb, Rank, Record
from milabench_ng.records.window import MIN_STEPS, SliceRow, WindowRule, first_full
from milabench_ng.verification.checks.missing_ranks import STEPS_TO_AGREE
from milabench_ng.verification.checks.slice_rows import bad_row
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, judged

MOST_LATE_S = 3.5
"""How late the stop may follow the last ``full``, and a worker's last slice the stop: an orchestrator that stood still
for longer has a mark of it."""
_MOST_LOOKED_AT = 20_000_000
"""Four times what a day takes that had no steady window."""
_EXACT_S = 0.05
"""``full`` is said when a slice ends."""


def stops(evidence: Evidence) -> Finding:
    """Each launch was full when its slices say, and the stop came once all ranks of all launches of its batch were."""
    return judged([*_moved(evidence), *_wrong_ranks(evidence)])


def _moved(evidence: Evidence) -> Iterator[str]:
    for kept, late_s, whole in late_stops(evidence):
        if not (0 if whole else -MOST_LATE_S) <= late_s <= (MOST_LATE_S if whole else math.inf):
            yield f"{kept.name}: it was stopped {late_s:.1f} s after the last launch of its launch group was full"


def late_stops(evidence: Evidence) -> Iterator[tuple[ReadRecord, float, bool]]:
    """Launches, how many seconds after the last ``full`` of their batch they were stopped, and whether all were full.

    The stop also follows a failure, company of a launch that is tried again, and max_seconds. Time for which the
    orchestrator stood still does not count.
    """
    planned = evidence.launches_planned
    for (number, _), batch in evidence.batches().items():
        good = [kept for kept in batch if kept.record.success]
        moments = [rank.full_s for kept in good for rank in kept.record.mnb.ranks]
        last_s = max((moment for moment in moments if moment is not None), default=0.0)
        whole = None not in moments and len(good) == planned.get(number)
        for kept in good:
            late_s = (kept.record.mnb.stop_s or 0.0) - last_s
            yield kept, min(late_s, max(0.0, late_s - _paused_s(kept.record))), whole


def _wrong_ranks(evidence: Evidence) -> Iterator[str]:
    for kept in evidence.good:
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
    if rank.slices[-1].start_s > mnb.stop_s + MOST_LATE_S + STEPS_TO_AGREE * step_s:
        yield "has slices from long after its stop"
    yield from _wrongly_full(mnb, rank, mnb.start_s, mnb.stop_s)


def _looked_at(rows: Sequence[SliceRow], rule: WindowRule) -> float:
    """How many slices are looked at to find out when the rank was full, at most: all of a window at the end of each."""
    shortest_s = min(row.length_s for row in rows)
    return len(rows) * min(len(rows), rule.length_s / shortest_s + MIN_STEPS)


def _wrongly_full(mnb: Mnb, rank: Rank, start_s: float, stop_s: float) -> Iterator[str]:
    full_s, wanted, seconds = rank.full_s, *(mnb.launch.arguments.get(name) for name in ("max_count", "max_seconds"))
    if bad_row(rank.slices, start_s) is not None:  # told elsewhere
        return
    if _looked_at(rank.slices, mnb.window_rule) > _MOST_LOOKED_AT:
        yield f"has {len(rank.slices):,} slices, too many to find out when it was full"
        return
    first_s = first_full(rank.slices, start_s, mnb.window_rule, wanted if isinstance(wanted, int) else 0)
    if full_s is None:
        if not isinstance(seconds, int | float) or stop_s - start_s < seconds - _EXACT_S:
            yield "was never full"
        elif first_s is not None and first_s < stop_s - _EXACT_S:
            yield f"was full {first_s - start_s:.1f} s after the start, by its slices, and did not say so"
        return
    if first_s is None or abs(first_s - full_s) > _EXACT_S:
        was = "it never was" if first_s is None else f"it was after {first_s - start_s:.1f} s"
        yield f"said that its window was full {full_s - start_s:.1f} s after the start, but by its slices {was}"
    before = [row for row in rank.slices if row.end_s <= full_s + _EXACT_S]
    counted = sum(row.count for row in before)
    if not before or before[-1].end_s < full_s - _EXACT_S:
        yield "was full at a moment when none of its slices ended"
    if full_s - start_s < mnb.window_rule.total_s - _EXACT_S:
        yield f"was full {full_s - start_s:.1f} s after the start, too soon for a window"
    if isinstance(wanted, int) and counted < wanted:
        yield f"was full after {counted} items, {wanted} are its max_count"
