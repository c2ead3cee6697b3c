"""What is odd inside a window: a slice far from the others, work that was made before it. Pure.

The mean over a window hides a stall: one slice of 5 s among seventeen of 0.5 s halves the rate, and drift tests, which
look at medians, do not see it. So the slice that cost the window most is held against the others, also in short
launches. It counts all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from milabench_ng.records.window import SliceRow, Window, is_steady, worked_off
from milabench_ng.report.launch.steadiness import Shape
from milabench_ng.stats import median, robust_std

LEAST_COST = 0.02
"""Of the window's time: a slice that cost or gained less is no finding."""
LEAST_DISTANCE = 0.25
"""Relative, of a slice's rate from the usual one."""
NOISE_FACTOR = 8.0
"""Robust standard deviations of the other slices' rates that a far one is away."""
_FEWEST = 4
"""Slices: of fewer none is usual."""


def far_slice(rows: Sequence[SliceRow], window: Window, start_s: float) -> Shape | None:
    """The slice that is far from the others of a window and cost or gained it most; None where all are alike.

    A slow slice that reaches over an edge of the window is looked at with the part inside, although it is in no rate.
    ``start_s``: when the launch began, which the slice's place is counted from.
    """
    inside = [row for row in rows if window.holds(row)]
    if len(inside) < _FEWEST:
        return None
    usual = median([_rate(row) for row in inside])
    if usual <= 0:
        return None
    over = [row for row in rows if _crosses(row, window) and _rate(row) < usual]
    costs = {place: _cost(row, window, usual) for place, row in enumerate((*inside, *over))}
    worst = max(costs, key=lambda place: abs(costs[place]))
    row, cost = (*inside, *over)[worst], costs[worst]
    others = [_rate(other) for place, other in enumerate(inside) if place != worst]
    far = max(LEAST_DISTANCE, NOISE_FACTOR * robust_std(others) / usual)
    seconds = window.end_s - window.start_s
    if abs(_rate(row) / usual - 1) < far or abs(cost) < LEAST_COST * seconds:
        return None
    place = f"slice {worst + 1} of {len(inside)} in the window" if worst < len(inside) else "a slice over its edge"
    detail = (
        f"{place}, {row.start_s - start_s:.1f} s after the start: {row.length_s:.1f} s at {_rate(row):.4g} items/s, "
    )
    kind: Literal["stall", "burst"] = "stall" if cost > 0 else "burst"
    word = "cost" if worst < len(inside) else "hid"
    said = f"it {word if cost > 0 else 'saved'} {abs(cost):.1f} s, {abs(cost) / seconds:.0%} of the window"
    return Shape(kind, f"{detail}usually {usual:.4g}; {said}")


def _rate(row: SliceRow) -> float:
    return row.count / row.length_s


def _crosses(row: SliceRow, window: Window) -> bool:
    return row.start_s < window.start_s < row.end_s or row.start_s < window.end_s < row.end_s


def _cost(row: SliceRow, window: Window, usual: float) -> float:
    """Seconds of the window that a slice took beyond what its items usually take."""
    part = (min(row.end_s, window.end_s) - max(row.start_s, window.start_s)) / row.length_s
    return part * (row.length_s - row.count / usual)


def stock(rows: Sequence[SliceRow]) -> Shape | None:
    """Whether the window worked off what was made before it; None where it did not, or hardly."""
    items, of = worked_off(rows), sum(row.count for row in rows)
    if is_steady(rows) or not of:
        return None
    return Shape(
        "backlog", f"{items:.0f} items, {items / of:.1%} of the window's, were made before it: so much too high"
    )
