"""How much repeats that resemble the one before say less about the mean than independent ones. Pure.

A host that wanders makes successive repeats alike. If rho is the correlation of a repeat with the next one, the
variance of the mean of n is that of independent ones times about ``(1 + rho) / (1 - rho)``, and n counts as so much
fewer. The correlation that is seen among few repeats is too small by about ``(1 + 4 rho) / n`` (Marriott and Pope,
Biometrika 41, 1954: for sums divided by n), and an estimate below the truth does more harm than one above: ``rho`` is
corrected for the one, and raised by 1 / n for the other.

There is no test before the correction, since the repeats that pass one by luck would have intervals that are too short.
Of fewer than twelve repeats nothing can be learnt, and they count as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from milabench_ng.model.stats import mean

KNOWN_FROM = 12
"""Fewest repeats whose correlation is estimated."""
MOST = 0.9
"""The largest correlation that is assumed: under it, twelve repeats count as less than two."""


def inflation(values: Sequence[float]) -> float:
    """The variance of the mean of ``values``, in the order measured, over that of independent ones; at least 1."""
    rho = correlation(values)
    return (1 + rho) / (1 - rho)


def correlation(values: Sequence[float]) -> float:
    """Of each value with the next, from 0 to `MOST`; 0 for fewer than twelve."""
    n, centre = len(values), mean(values)
    squares = math.fsum((value - centre) ** 2 for value in values)
    if n < KNOWN_FROM or not squares:
        return 0.0
    seen = math.fsum((one - centre) * (other - centre) for one, other in pairwise(values)) / squares
    return min(MOST, max(0.0, (n * seen + 1) / (n - 4) + 1 / n))
