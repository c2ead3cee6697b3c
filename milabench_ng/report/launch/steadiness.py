"""Whether a launch worked at one rate: drift, sawtooth, no steady state. Pure.

Uses the slices after settling (from the window on, if that begins earlier), reduced to medians of three so that a
single slow slice is not reported. Each finding needs a trend test or a noise threshold *and* an effect that matters,
since with many launches chance alone produces many findings. Launches that start slowly or never settle are common
(Barrett et al., "Virtual machine warmup blows hot and cold", OOPSLA 2017); nothing is truncated or left out because of
a finding.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from milabench_ng.records.window import SliceRow
from milabench_ng.stats import mean, median, sample_std

MIN_CHANGE = 0.03
"""Relative change over the launch below which it has neither drift nor a change of level."""
MIN_SWING = 0.05
"""Relative height below which a swing is not a tooth."""
MIN_TURNS = 4
"""Fewest turns from rise to fall or back: two whole teeth."""
_TREND_Z = 3.29
"""Two-sided 0.1 % of the normal distribution."""
_NOISE_FACTOR = 6.0
_GROUP = 3
_BLOCKS = 12
MIN_SLICES = _GROUP * _BLOCKS
"""With fewer slices, only the halves are compared."""
MIN_HALF = 6
"""Fewest slices in a half; with fewer, a launch is not judged."""
MIN_HALVES = 0.15
"""Relative change between the halves of a short launch below which it has one level."""
_STANDARD_ERRORS = 2.0


class Shape(msgspec.Struct, frozen=True):
    """The shape of a launch's rate over time."""

    kind: Literal["drift", "sawtooth", "no steady state", "stall", "burst", "backlog"]
    detail: str


def odd_shape(rows: Sequence[SliceRow], from_s: float, until_s: float) -> Shape | None:
    """What is odd about the rate between two moments; None for a steady launch, or one too short to tell."""
    begin = bisect_left(rows, from_s, key=lambda row: row.start_s)
    end = bisect_right(rows, until_s, key=lambda row: row.end_s)
    rates = [row.count / row.length_s for row in rows[begin:end]]
    if len(rates) < MIN_SLICES:
        return _halves(rates)
    smooth = [sorted(rates[i : i + _GROUP])[_GROUP // 2] for i in range(0, len(rates) - _GROUP + 1, _GROUP)]
    level = median(smooth)
    if level <= 0 or max(smooth) - min(smooth) < MIN_CHANGE * level:
        return None
    relative = [value / level for value in smooth]
    blocks = _block_means(relative)
    return _drift(blocks) or _sawtooth(relative) or _unsettled(blocks)


def _halves(rates: Sequence[float]) -> Shape | None:
    """Whether the halves of a launch with too few slices for a trend have different levels, beyond their noise."""
    half = len(rates) // 2
    if half < MIN_HALF:
        return None
    first, second = rates[:half], rates[-half:]
    change = mean(second) / mean(first) - 1 if mean(first) > 0 else 0.0
    error = math.sqrt((sample_std(first) ** 2 + sample_std(second) ** 2) / half) / (mean(first) or 1.0)
    if abs(change) < max(MIN_HALVES, _STANDARD_ERRORS * error):
        return None
    return Shape("no steady state", f"the second half was {change:+.0%} against the first")


def _block_means(values: Sequence[float]) -> list[float]:
    edges = [len(values) * i // _BLOCKS for i in range(_BLOCKS + 1)]
    return [mean(values[begin:end]) for begin, end in pairwise(edges)]


def _drift(blocks: Sequence[float]) -> Shape | None:
    """Trend test of Mann (Econometrica 13, 1945) and Kendall, with the slope of Theil and Sen (JASA 63, 1968)."""
    n = len(blocks)
    pairs = [(blocks[j] - blocks[i], j - i) for i in range(n) for j in range(i + 1, n)]
    s = sum((rise > 0) - (rise < 0) for rise, _ in pairs)
    z = max(0, abs(s) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    change = median([rise / run for rise, run in pairs]) * (n - 1)
    if z < _TREND_Z or abs(change) < MIN_CHANGE:
        return None
    return Shape("drift", f"the rate {'rose' if change > 0 else 'fell'} by {abs(change):.1%} over the launch")


def _sawtooth(values: Sequence[float]) -> Shape | None:
    """Repeated turns, each after a swing that is large relative to the noise between successive values."""
    steps = [abs(after - before) for before, after in pairwise(values)]
    swing = max(MIN_SWING, _NOISE_FACTOR * 1.4826 * median(steps) / math.sqrt(2))
    low = high = values[0]
    turns, rising = 0, None
    for value in values:
        low, high = min(low, value), max(high, value)
        if rising is not True and value - low >= swing:
            turns, rising, high = turns + (rising is False), True, value
        elif rising is not False and high - value >= swing:
            turns, rising, low = turns + (rising is True), False, value
    if turns < MIN_TURNS:
        return None
    return Shape("sawtooth", f"the rate turned {turns} times by more than {swing:.0%}")


def _unsettled(blocks: Sequence[float]) -> Shape | None:
    """Whether the truncation with the most even rest is in the second half (MSER: White, Simulation 69, 1997)."""
    n = len(blocks)

    def spread(begin: int) -> float:
        rest = blocks[begin:]
        centre = mean(rest)
        return math.fsum((value - centre) ** 2 for value in rest) / len(rest) ** 2

    begin = min(range(n - 2), key=spread)
    change = mean(blocks[begin:]) / mean(blocks[:begin]) - 1 if begin else 0.0
    if begin <= n / 2 or abs(change) < MIN_CHANGE:
        return None
    return Shape("no steady state", f"the level changed by {change:+.1%} after {begin / n:.0%} of the launch")
