"""Repeats that lie far below all others. Pure.

Something that disturbs one repeat in ten makes two kinds of repeats, and t knows only one: its interval holds the mean
over both kinds, or that of the usual ones, by chance. So intervals are widened by the distance between the two
(``moved`` of a `LogStat`). Slow repeats that none of the repeats shows are in no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 0.05
"""How far below all others a slow repeat lies at least, as a fraction."""
TIMES = 20
"""And at least so many times as far as the others lie apart, over the number of repeats: of five, four times as far, of
ten, twice. So noise alone is hardly ever called slow."""
FEWEST = 5
"""Fewest repeats of which any is called slow; at most a third is, since more are no exception."""


def slow_places(logs: Sequence[float]) -> tuple[int, ...]:
    """Which of the repeats with these logarithms of rates are slow."""
    order = sorted(range(len(logs)), key=logs.__getitem__)
    for few in range(len(logs) // 3 if len(logs) >= FEWEST else 0, 0, -1):
        last, first, top = (logs[order[place]] for place in (few - 1, few, -1))
        if first - last >= max(math.log1p(LEAST), TIMES / len(logs) * (top - first)):
            return tuple(order[:few])
    return ()


def usual(logs: Sequence[float]) -> list[int]:
    """The places of all others."""
    slow = slow_places(logs)
    return [place for place in range(len(logs)) if place not in slow]
