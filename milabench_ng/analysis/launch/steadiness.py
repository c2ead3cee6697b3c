"""Whether a launch worked at one rate: drift, periods, changes of level. Pure.

Each finding needs a test against the noise *and* an effect that matters, since with many launches chance alone produces
many findings. Launches that start slowly or never settle are common (Barrett et al., "Virtual machine warmup blows hot
and cold", OOPSLA 2017); nothing is truncated or left out because of a finding.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

import msgspec

from milabench_ng.model.stats import mean, median
from milabench_ng.records.window import SliceRow

MIN_CHANGE = 0.03
"""Relative change below which a launch has neither drift nor a change of level."""
MIN_SWING = 0.05
"""Relative height below which a swing is not a tooth."""
MIN_SLICES = 12
"""With fewer slices, a launch is not judged."""
_TREND_Z = 3.29
"""Two-sided 0.1 % of the normal distribution."""
_BRIDGE = 1.95
"""A Brownian bridge goes further from 0 in 0.1 % of cases (Kolmogorov's distribution)."""
_GROUP = 3
"""Slices whose median is a value in the search for a period, so that single slow slices are none."""
_LIKENESS = 4.0
"""Least autocorrelation at a period, in standard errors."""


class Shape(msgspec.Struct, frozen=True):
    """The shape of a launch's rate over time."""

    kind: Literal["drift", "sawtooth", "no steady state", "stall", "burst", "backlog"]
    detail: str


def odd_shape(rows: Sequence[SliceRow], from_s: float, window_s: float, until_s: float) -> Shape | None:
    """What is odd about the rate from ``from_s`` to ``until_s``, or from ``window_s``, where its window begins.

    None for a steady launch, or one too short to tell.
    """
    whole, window = (_rates(rows, begin_s, until_s) for begin_s in (from_s, window_s))
    return _drift(whole) or _period(whole) or _step(window, "window") or _step_beyond_warm_up(whole)


def _rates(rows: Sequence[SliceRow], from_s: float, until_s: float) -> list[float]:
    """Relative to their median; empty if there are too few."""
    begin = bisect_left(rows, from_s, key=lambda row: row.start_s)
    end = bisect_right(rows, until_s, key=lambda row: row.end_s)
    rates = [row.count / row.length_s for row in rows[begin:end]]
    usual = median(rates)
    return [rate / usual for rate in rates] if len(rates) >= MIN_SLICES and usual > 0 else []


def _drift(rates: Sequence[float]) -> Shape | None:
    """Trend test of Mann (Econometrica 13, 1945) and Kendall, with the slope of Theil and Sen (JASA 63, 1968)."""
    if not rates:
        return None
    edges = [len(rates) * i // MIN_SLICES for i in range(MIN_SLICES + 1)]
    blocks = [mean(rates[begin:end]) for begin, end in pairwise(edges)]
    n = len(blocks)
    pairs = [(blocks[j] - blocks[i], j - i) for i in range(n) for j in range(i + 1, n)]
    s = sum((rise > 0) - (rise < 0) for rise, _ in pairs)
    z = max(0, abs(s) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    change = median([rise / run for rise, run in pairs]) * (n - 1)
    if z < _TREND_Z or abs(change) < MIN_CHANGE:
        return None
    return Shape("drift", f"the rate {'rose' if change > 0 else 'fell'} by {abs(change):.1%} over the launch")


def _period(rates: Sequence[float]) -> Shape | None:
    """A peak of the autocorrelation, after it has once been below 0, and a swing that is large over such a period."""
    values = [median(rates[i : i + _GROUP]) for i in range(0, len(rates) - _GROUP + 1, _GROUP)]
    likeness = {lag: _likeness(values, lag) for lag in range(1, len(values) // 2 + 1)}
    turned = next((lag for lag, each in likeness.items() if each < 0), len(values))
    peaks = {lag: each for lag, each in likeness.items() if lag > turned}
    if not peaks:
        return None
    lag = max(peaks, key=peaks.__getitem__)
    swing = median([max(values[i : i + lag]) - min(values[i : i + lag]) for i in range(len(values) - lag + 1)])
    if peaks[lag] * math.sqrt(len(values) - lag) < _LIKENESS or swing < MIN_SWING:
        return None
    return Shape("sawtooth", f"the rate swung by {swing:.1%} every {lag * _GROUP} slices")


def _likeness(values: Sequence[float], lag: int) -> float:
    centre = mean(values)
    squares = mean([(value - centre) ** 2 for value in values])
    products = [(one - centre) * (other - centre) for one, other in zip(values, values[lag:], strict=False)]
    return mean(products) / squares if squares > 0 else 0.0


def _step_beyond_warm_up(rates: Sequence[float]) -> Shape | None:
    """A change of level in the second half of a launch, or to a lower level: a rise in the first half is a warm-up."""
    found = _step(rates, "launch")
    half = len(rates) // 2
    warmed_up = found is not None and _step(rates[half:], "") is None and mean(rates[half:]) > mean(rates[:half])
    return None if warmed_up else found


def _step(rates: Sequence[float], where: str) -> Shape | None:
    """Where the sum of what is above the mean goes furthest from 0 (CUSUM: Page, Biometrika 41, 1954).

    The noise is estimated from successive slices, so that the step itself is not in it.
    """
    if not rates:
        return None
    centre = mean(rates)
    noise = math.sqrt(mean([(after - before) ** 2 for before, after in pairwise(rates)]) / 2)
    sums = list(accumulate(rate - centre for rate in rates))[:-1]
    place = 1 + max(range(len(sums)), key=lambda i: abs(sums[i]))
    change = mean(rates[place:]) / mean(rates[:place]) - 1 if mean(rates[:place]) > 0 else math.inf
    if abs(sums[place - 1]) <= _BRIDGE * noise * math.sqrt(len(rates)) or abs(change) < MIN_CHANGE:
        return None
    said = f"the level changed by {change:+.1%} after {place / len(rates):.0%} of the {where}"
    return Shape("no steady state", said)
