"""Oddities inside a window: a slice far from the others, or work done before the window. Pure.

The mean over a window hides a stall: one slice of 5 s among seventeen of 0.5 s halves the rate, and drift tests, which
use medians, miss it. Therefore the slice that cost the window most is compared with the others, also in short launches.
It still counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from milabench_ng.analysis.launch.steadiness import Shape
from milabench_ng.model.stats import median, robust_std
from milabench_ng.records.window import SliceRow, Window, is_steady, worked_off

LEAST_COST = 0.02
"""Share of the window's time: a slice that cost or gained less is not reported."""
LEAST_DISTANCE = 0.25
"""Least relative distance of a slice's rate from the usual one."""
NOISE_FACTOR = 8.0
"""Least distance of a slice, in robust standard deviations of the other slices' rates."""
STALL_S = 0.8
"""A slice that took so much longer than usual for its items is a stall, whatever its rate: a second less the noise
of its own items."""
STALL_NOISE = 6.0
"""The same, in robust standard deviations of how much longer the other slices took."""
_FEWEST = 4
"""Fewest slices for which there is a usual rate."""


def far_slice(rows: Sequence[SliceRow], window: Window, start_s: float) -> Shape | None:
    """The slice that is far from the others in a window and cost or gained most; None if all are similar.

    A slow slice that crosses an edge of the window counts with its part inside, even if it is in no rate. ``start_s``:
    the launch's start, relative to which the slice's position is given. Of items that are timed one by one, the
    percentiles show what waited; their slices need not be alike, since a prompt that is read makes no token.
    """
    inside = [row for row in rows if window.holds(row)]
    if len(inside) < _FEWEST or any(row.item_latency for row in inside):
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
    spread = robust_std([_longer(other, usual) for place, other in enumerate(inside) if place != worst])
    stalled = _longer(row, usual) >= max(STALL_S, STALL_NOISE * spread)
    if not (stalled or abs(_rate(row) / usual - 1) >= far) or abs(cost) < LEAST_COST * seconds:
        return None
    place = (
        f"slice {worst + 1} of {len(inside)} in the window" if worst < len(inside) else "a slice across its boundary"
    )
    detail = (
        f"{place}, {row.start_s - start_s:.1f} s after the start: {row.length_s:.1f} s at {_rate(row):.4g} items/s, "
    )
    kind: Literal["stall", "burst"] = "stall" if cost > 0 else "burst"
    word = "hid" if worst >= len(inside) and window.edges != "shared" else "cost"
    said = f"it {word if cost > 0 else 'saved'} {abs(cost):.1f} s, {abs(cost) / seconds:.0%} of the window"
    return Shape(kind, f"{detail}usually {usual:.4g}; {said}")


def _rate(row: SliceRow) -> float:
    return row.count / row.length_s


def _crosses(row: SliceRow, window: Window) -> bool:
    return row.start_s < window.start_s < row.end_s or row.start_s < window.end_s < row.end_s


def _cost(row: SliceRow, window: Window, usual: float) -> float:
    """The seconds of the window that a slice took in excess of the usual time for its items."""
    part = (min(row.end_s, window.end_s) - max(row.start_s, window.start_s)) / row.length_s
    return part * _longer(row, usual)


def _longer(row: SliceRow, usual: float) -> float:
    """The seconds that a slice took in excess of the usual time for its items."""
    return row.length_s - row.count / usual


def stock(rows: Sequence[SliceRow]) -> Shape | None:
    """Work done before the window and used up in it; None if there was none, or hardly any."""
    items, of = worked_off(rows), sum(row.count for row in rows)
    if is_steady(rows) or not of:
        return None
    return Shape(
        "backlog",
        f"{items:.0f} items ({items / of:.1%} of the window's) were prefetched before the window, so the rate "
        "is too high by that much",
    )
