"""What is odd inside a window: a slice far from the others, work that was made before it. Pure.

The mean over a window hides a stall: one slice of 5 s among seventeen of 0.5 s halves the rate, and drift tests, which
look at medians, do not see it. So the slice that cost the window most is held against the others, also in short
launches. It counts all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from milabench_ng.records.window import SliceRow, is_steady, worked_off
from milabench_ng.report.steadiness import Shape
from milabench_ng.stats import median, robust_std

LEAST_COST = 0.02
"""Of the window's time: a slice that cost or gained less is no finding."""
LEAST_DISTANCE = 0.25
"""Relative, of a slice's rate from the usual one."""
NOISE_FACTOR = 8.0
"""Robust standard deviations of the other slices' rates that a far one is away."""
_FEWEST = 4
"""Slices: of fewer none is usual."""


def far_slice(rows: Sequence[SliceRow], start_s: float) -> Shape | None:
    """The slice of a window that is far from the others and cost or gained most; None where all are alike.

    ``start_s``: when the launch began, which the slice's place is counted from.
    """
    if len(rows) < _FEWEST:
        return None
    rates = [row.count / row.length_s for row in rows]
    usual = median(rates)
    if usual <= 0:
        return None
    costs = [row.length_s - row.count / usual for row in rows]
    worst = max(range(len(rows)), key=lambda place: abs(costs[place]))
    others = rates[:worst] + rates[worst + 1 :]
    far = max(LEAST_DISTANCE, NOISE_FACTOR * robust_std(others) / usual)
    seconds = math.fsum(row.length_s for row in rows)
    if abs(rates[worst] / usual - 1) < far or abs(costs[worst]) < LEAST_COST * seconds:
        return None
    row, cost = rows[worst], costs[worst]
    where = f"slice {worst + 1} of {len(rows)} in the window, {row.start_s - start_s:.1f} s after the start"
    detail = f"{where}: {row.length_s:.1f} s at {rates[worst]:.4g} items/s, usually {usual:.4g}; "
    if cost > 0:
        return Shape("stall", f"{detail}it cost {cost:.1f} s, {cost / seconds:.0%} of the window")
    return Shape("burst", f"{detail}it saved {-cost:.1f} s, {-cost / seconds:.0%} of the window")


def stock(rows: Sequence[SliceRow]) -> Shape | None:
    """Whether the window worked off what was made before it; None where it did not, or hardly."""
    if is_steady(rows):
        return None
    items, part = worked_off(rows), worked_off(rows) / sum(row.count for row in rows)
    return Shape("backlog", f"{items:.0f} items, {part:.1%} of the window's, were made before it: so much too high")
