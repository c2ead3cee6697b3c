"""The averaging window of a launch and the rate in it. Pure.

The window is [stop - 10 s, stop - 1 s] of the orchestrator's monotonic clock, longer if it holds fewer than 10
iterations. Of a slice across an edge the part inside counts; in records of earlier versions, none of it (`Edges`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from milabench_ng.model.bounds import Amount, Latencies, Length, Moment, WholeNumber
from milabench_ng.model.events import Slice
from milabench_ng.model.stats import mean, median
from milabench_ng.records.latency import merged

MIN_STEPS = 10
WORKED_OFF_LIMIT = 0.005
"""The part of a window's items that may have been made before it, beyond what was made ahead at its end.

At half a percent, a rate is too high by at most that and a batch, since slices end with a batch.
"""
MOST_UNCOVERED = 0.25
"""The part of a window that slices may leave uncovered, unless it is less than two usual slices."""
EDGE = 2
"""Slices at an edge of a window."""

Edges = Literal["whole", "shared"]
"""What a slice across an edge of the window counts: nothing (whole slices only), or its part inside (shared).

With whole slices a stall that crosses an edge is in no rate, which is then too high.
"""


class WindowRule(msgspec.Struct, frozen=True, kw_only=True):
    """How long a launch is averaged, in seconds."""

    settle_s: float = 2.0
    """Time after ``Start`` before the window may begin."""
    length_s: float = 9.0
    margin_s: float = 1.0
    """Time between the end of the window and ``Stop``."""
    edges: Edges | UnsetType = UNSET
    """Records of earlier versions do not say it: whole slices. Today's runs have `MEASURED_BY`."""

    @property
    def total_s(self) -> float:
        """The shortest time from ``Start`` to ``Stop``."""
        return self.settle_s + self.length_s + self.margin_s

    @property
    def comparable(self) -> bool:
        """False for a window that was shortened (by tests): its results are marked."""
        whole = WindowRule()
        return self.length_s >= whole.length_s and self.margin_s >= whole.margin_s and self.settle_s >= whole.settle_s


MEASURED_BY = WindowRule(edges="shared")
"""The rule of a run, unless it is shortened."""


class SliceRow(msgspec.Struct, frozen=True, array_like=True):
    """One slice in a record: ``[start_s, length_s, count, steps, wait_s, backlog, latency, notes, item_latency]``."""

    start_s: Moment
    length_s: Length
    count: WholeNumber
    steps: WholeNumber
    wait_s: Amount
    backlog: WholeNumber | None = None
    """Items made but not yet requested, the mean over the slice's steps; None if nothing is made ahead."""
    latency: Latencies = ()
    """Latencies of its batches; empty except for inference."""
    notes: dict[str, Amount] = {}
    """Sums over its steps of what the workload noted, by name."""
    item_latency: dict[str, Latencies] = {}
    """Latencies of its items, by what of them the workload timed; absent in rows of earlier versions."""

    @classmethod
    def of(cls, event: Slice) -> SliceRow:
        """The row of a worker's event."""
        return cls(
            event.start_s,
            event.length_s,
            event.count,
            event.steps,
            event.wait_s,
            event.backlog,
            event.latency,
            event.notes,
            event.item_latency,
        )

    @property
    def end_s(self) -> float:
        """When its last step ended."""
        return self.start_s + self.length_s


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The averaging window of one launch, on the node's monotonic clock."""

    start_s: float
    end_s: float
    edges: Edges | UnsetType = UNSET
    """As in the rule."""

    def part(self, row: SliceRow) -> float:
        """The part of a slice that counts, 0 to 1."""
        if self.holds(row):
            return 1.0
        inside_s = min(row.end_s, self.end_s) - max(row.start_s, self.start_s)
        return max(0.0, inside_s) / row.length_s if self.edges == "shared" else 0.0

    def holds(self, row: SliceRow) -> bool:
        """Whether a slice is wholly inside."""
        return row.start_s >= self.start_s and row.end_s <= self.end_s


def settled_after(settled_s: float, row_start_s: float, row_end_s: float, rule: WindowRule, *, first: bool) -> float:
    """When a rank that was to settle by ``settled_s`` has settled, given one more slice.

    A long slice at the start is warm-up, such as a library's autotuning. The window must not overlap it, nor what
    follows the first slice: meanwhile the loader filled its buffers, and they are worked off in a burst.
    """
    if row_start_s >= settled_s or row_end_s <= settled_s:
        return settled_s
    return row_end_s + (rule.settle_s if first else 0.0)


def settled_since(rows: Sequence[SliceRow], start_s: float, rule: WindowRule) -> float:
    """The time from which on a rank's slices may be in its window."""
    settled = _begun(rows, start_s) + rule.settle_s
    for place, (row, end_s) in enumerate(zip(rows, _ends(rows), strict=True)):
        if row.start_s >= settled:
            break
        settled = settled_after(settled, row.start_s, end_s, rule, first=place == 0)
    return settled


def _begun(rows: Sequence[SliceRow], start_s: float) -> float:
    """When a rank began to settle: as its first slice did, which may be long after ``Start`` on a busy node."""
    return rows[0].start_s if rows else start_s


def is_full(settled: Sequence[SliceRow], settled_s: float, now_s: float, rule: WindowRule) -> bool:
    """Whether a stop from ``now_s`` on, when a slice ended, would leave a full window of steady work.

    ``settled``: the slices that began after the rank had settled, at ``settled_s``.
    """
    if now_s < settled_s + rule.length_s + rule.margin_s:
        return False
    window = averaging_window([settled], now_s, rule)
    return window is not None and is_steady([row for row in settled if window.holds(row)])


def first_full(rows: Sequence[SliceRow], start_s: float, rule: WindowRule, max_count: int) -> float | None:
    """When a rank with these slices is full: has its items, and `is_full`; None if it never is."""
    settled_s, settled, count = _begun(rows, start_s) + rule.settle_s, list[SliceRow](), 0.0
    for place, (row, end_s) in enumerate(zip(rows, _ends(rows), strict=True)):
        count += row.count
        settled_s = settled_after(settled_s, row.start_s, end_s, rule, first=place == 0)
        if row.start_s >= settled_s:
            settled.append(row)
        while _is_past(settled, end_s - rule.margin_s, rule):
            del settled[0]
        if count >= max_count and is_full(settled, settled_s, end_s, rule):
            return end_s
    return None


def _is_past(rows: Sequence[SliceRow], end_s: float, rule: WindowRule) -> bool:
    """Whether the first slice is before any window that ends from ``end_s`` on."""
    enough = sum(row.steps for row in rows[1:] if row.end_s <= end_s) >= MIN_STEPS
    return enough and rows[1].start_s <= end_s - rule.length_s


def _ends(rows: Sequence[SliceRow]) -> list[float]:
    """When each slice ended: as the next one began, which a sum would miss by rounding."""
    return [*(row.start_s for row in rows[1:]), *(row.end_s for row in rows[-1:])]


def averaging_window(
    ranks: Sequence[Sequence[SliceRow]], stop_s: float, rule: WindowRule, settled_s: float = -math.inf
) -> Window | None:
    """The window that ends ``rule.margin_s`` before ``stop_s``.

    None if a rank has too few steps for one, if its slices cover too little of it, or if it would begin before
    ``settled_s``.
    """
    end = stop_s - rule.margin_s
    starts = [_start_of_last_steps(rows, end) for rows in ranks]
    known = [start for start in starts if start is not None]
    if not known or len(known) < len(starts):
        return None
    window = Window(start_s=min(end - rule.length_s, *known), end_s=end, edges=rule.edges)
    covered = all(_covers(rows, window) for rows in ranks)
    return window if covered and window.start_s >= settled_s else None


def settled_window(
    ranks: Sequence[Sequence[SliceRow]], stop_s: float, rule: WindowRule, start_s: float
) -> Window | None:
    """The window of ranks that began at ``start_s``.

    None if a rank's own window would begin before it had settled, which ``full`` rules out for each. The common window
    may begin a little earlier, with that of the rank whose last steps took longest.
    """
    own = [averaging_window([rows], stop_s, rule, settled_since(rows, start_s, rule)) for rows in ranks]
    return averaging_window(ranks, stop_s, rule) if all(own) else None


def recorded_window(
    ranks: Sequence[Sequence[SliceRow]], stop_s: float, rule: WindowRule, start_s: float
) -> Window | None:
    """The window of a record; in old ones it may begin from ``rule.settle_s`` on, however long the first slice was."""
    return averaging_window(ranks, stop_s, rule, start_s + rule.settle_s)


def _covers(rows: Sequence[SliceRow], window: Window) -> bool:
    """Whether what counts of the slices covers enough of ``window``, and one slice is wholly inside."""
    usual = median([row.length_s for row in rows if window.holds(row)])
    length_s = window.end_s - window.start_s
    covered_s = math.fsum(part * row.length_s for part, row in _parts(rows, window))
    return length_s - covered_s <= max(MOST_UNCOVERED * length_s, 2 * usual) if usual > 0 else False


def _start_of_last_steps(rows: Sequence[SliceRow], end_s: float) -> float | None:
    """Start of the last slice from which on there are ``MIN_STEPS`` steps until ``end_s``."""
    steps = 0
    for row in reversed(rows):
        if row.end_s <= end_s:
            steps += row.steps
            if steps >= MIN_STEPS:
                return row.start_s
    return None


def rate(rows: Sequence[SliceRow], window: Window) -> float:
    """Items per second over what counts of the slices in ``window``; NaN without any."""
    parts = _parts(rows, window)
    seconds = math.fsum(part * row.length_s for part, row in parts)
    return math.fsum(part * row.count for part, row in parts) / seconds if seconds > 0 else math.nan


def wait_share(rows: Sequence[SliceRow], window: Window) -> float:
    """Share of the window's time that was spent waiting for data, 0 to 1; NaN without any slice."""
    parts = _parts(rows, window)
    seconds = math.fsum(part * row.length_s for part, row in parts)
    return math.fsum(part * row.wait_s for part, row in parts) / seconds if seconds > 0 else math.nan


def _parts(rows: Sequence[SliceRow], window: Window) -> list[tuple[float, SliceRow]]:
    """The slices that touch ``window``, each with the part of it that counts."""
    return [(window.part(row), row) for row in rows if row.start_s < window.end_s and row.end_s > window.start_s]


def latencies(rows: Sequence[SliceRow], window: Window) -> Latencies:
    """The latencies of the batches in the slices wholly inside ``window``."""
    return merged(row.latency for row in rows if window.holds(row))


def item_latencies(ranks: Sequence[Sequence[SliceRow]], window: Window) -> dict[str, Latencies]:
    """The latencies of items in the slices wholly inside ``window``, of all ranks, by what was timed."""
    inside = [row.item_latency for rows in ranks for row in rows if window.holds(row)]
    names = sorted({name for timed in inside for name in timed})
    return {name: merged(timed.get(name, ()) for timed in inside) for name in names}


def notes_per_step(ranks: Sequence[Sequence[SliceRow]], window: Window) -> dict[str, float]:
    """What was noted in ``window``, by name: means per step over what counts of the slices, of all ranks."""
    parts = [pair for rows in ranks for pair in _parts(rows, window)]
    steps = math.fsum(part * row.steps for part, row in parts)
    names = dict.fromkeys(name for _, row in parts for name in row.notes) if steps else ()
    return {name: math.fsum(part * row.notes.get(name, 0.0) for part, row in parts) / steps for name in names}


def items_per_step(ranks: Iterable[Sequence[SliceRow]]) -> float | None:
    """Mean over all steps of all ranks; None without a step."""
    rows = [row for slices in ranks for row in slices]
    steps = sum(row.steps for row in rows)
    return sum(row.count for row in rows) / steps if steps else None


def worked_off(rows: Sequence[SliceRow]) -> float:
    """Items by which the backlog fell over the slices of a window: they were made before it, outside its time.

    The difference between the edges, scaled from the distance of their middles to the whole window. 0 if the backlog
    rose: then the device sets the pace.
    """
    edges = backlog_edges(rows)
    part = _edge(len(rows))
    return 0.0 if edges is None else max(0.0, edges[0] - edges[1]) * len(rows) / max(1, len(rows) - part)


def backlog_edges(rows: Sequence[SliceRow]) -> tuple[float, float] | None:
    """The backlog at the beginning and at the end of the slices of a window; None if none is known.

    At the beginning the larger of the edge's slices: the initial backlog may be worked off within the first. At the end
    their mean: at any moment a batch more or less is ready.
    """
    known = [row.backlog for row in rows if row.backlog is not None]
    part = _edge(len(known))
    return (max(known[:part]), mean(known[-part:])) if known else None


def _edge(slices: int) -> int:
    """How many of a window's slices are at one of its edges."""
    return max(1, min(EDGE, slices // 2))


def is_steady(rows: Sequence[SliceRow]) -> bool:
    """Whether what was worked off in a window is no more than ``WORKED_OFF_LIMIT`` of its items."""
    return worked_off(rows) <= WORKED_OFF_LIMIT * sum(row.count for row in rows)


def launch_perf(ranks: Sequence[Sequence[SliceRow]], window: Window) -> float:
    """``perf`` of a launch: the mean of its ranks' rates, so that an ideal machine scales flat."""
    return mean([rate(rows, window) for rows in ranks])
