"""The course of a launch: its rate over time, thinned so that a page with a thousand launches stays small. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.window import SliceRow, Window, recorded_window, settled_since

MAX_POINTS = 120
_QUARTER = 4


BatchKey = tuple[str, int, int]
"""Session, repeat and batch."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of one rank. Times are in seconds since ``start``, rates in items of ``unit`` per second."""

    label: str
    job_id: str
    session: str
    """The run of ``mnb`` that it comes from."""
    run: int
    """The repeat, from 0."""
    batch: int
    """Its number in the plan; 0 in older records."""
    device: str
    unit: str
    edges: tuple[float, ...]
    """The begin of the first slice, and the end of each; empty without slices."""
    rates: tuple[float, ...]
    """Of each slice."""
    window: tuple[float, float] | None
    """Begin and end of the averaging window; None if there are too few slices for one."""
    change: float | None
    """Relative change from the first to the last quarter of the slices after settling; None if there are too few."""
    failed: bool

    @property
    def batch_key(self) -> BatchKey:
        """Courses of a test with the same one ran at the same time."""
        return self.session, self.run, self.batch


def courses(read: ReadRecord) -> tuple[Course, ...]:
    mnb = read.record.mnb
    ranks = [rank.slices for rank in mnb.ranks]
    first = min((rows[0].start_s for rows in ranks if rows), default=0.0)
    start = first if mnb.start_s is None else mnb.start_s
    window = None if mnb.stop_s is None else recorded_window(ranks, mnb.stop_s, mnb.window_rule, start)
    slots = mnb.launch.slot_ids
    return tuple(
        _course(
            read,
            device,
            [row for row in rows if row.length_s > 0],
            start,
            window,
        )
        for device, rows in zip(slots, ranks, strict=False)
    )


def _course(read: ReadRecord, device: str, rows: Sequence[SliceRow], start_s: float, window: Window | None) -> Course:
    mnb = read.record.mnb
    points = thinned(rows)
    settled = settled_since(rows, start_s, mnb.window_rule)
    judged_from = settled if window is None else min(settled, window.start_s)
    return Course(
        label=mnb.label,
        job_id=read.record.job_id,
        session=mnb.run_id,
        run=mnb.launch.run,
        batch=mnb.batch,
        device=device,
        unit=mnb.unit,
        edges=tuple(
            round(at - start_s, 2) for at in (*(row.start_s for row in points[:1]), *(row.end_s for row in points))
        ),
        rates=tuple(float(f"{at.count / at.length_s:.4g}") for at in points),
        window=None if window is None else (round(window.start_s - start_s, 2), round(window.end_s - start_s, 2)),
        change=change([row for row in rows if row.start_s >= judged_from]),
        failed=mnb.failure is not None or not read.record.success,
    )


def thinned(rows: Sequence[SliceRow], most: int = MAX_POINTS) -> list[SliceRow]:
    """Reduce to at most ``most`` rows by merging neighbours, which preserves total items and seconds."""
    size = max(1, math.ceil(len(rows) / most))
    return [_together(rows[begin : begin + size]) for begin in range(0, len(rows), size)]


def _together(rows: Sequence[SliceRow]) -> SliceRow:
    return SliceRow(
        start_s=rows[0].start_s,
        length_s=math.fsum(row.length_s for row in rows),
        count=sum(row.count for row in rows),
        steps=sum(row.steps for row in rows),
        wait_s=math.fsum(row.wait_s for row in rows),
    )


def change(rows: Sequence[SliceRow]) -> float | None:
    """The relative change from the rate of the first quarter of the slices to that of the last."""
    part = len(rows) // _QUARTER
    if part == 0:
        return None
    before, after = _together(rows[:part]), _together(rows[-part:])
    if before.count == 0:
        return None
    return (after.count / after.length_s) / (before.count / before.length_s) - 1


def worst_drift(found: Sequence[Course]) -> Course | None:
    """The course whose rate changed most; None if none is long enough to tell."""
    known = [course for course in found if course.change is not None and not course.failed]
    return max(known, key=lambda course: abs(course.change or 0.0), default=None)
