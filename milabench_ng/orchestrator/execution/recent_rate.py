"""The rate of a rank at this moment, for display. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from milabench_ng.records.window import SliceRow

RECENT_S = 5.0
"""Long enough for a steady figure, short enough to leave the start behind soon."""
LONG_S = 2.0
"""A slice that takes so much longer than those before it is waited for in vain so far: its time counts."""


def recent_rate(slices: Sequence[SliceRow], now_s: float) -> float:
    """Items per second over the slices begun in the last five seconds, or the last one.

    What has passed since counts too if it is long, so that the rate of a rank that waits falls. ``now_s``: on the clock
    of the slices.
    """
    if not slices:
        return 0.0
    rows = list(takewhile(lambda row: row.start_s >= now_s - RECENT_S, reversed(slices))) or slices[-1:]
    seconds = math.fsum(row.length_s for row in rows)
    open_s = now_s - slices[-1].end_s
    late_s = open_s if open_s > seconds / len(rows) + LONG_S else 0.0
    return sum(row.count for row in rows) / (seconds + late_s)
