"""Whether what a report says of the next run comes true: the repeats for +-1 %."""

from __future__ import annotations

import numpy as np

from milabench_ng.analysis.statistics.intervals import combine, log_stat, repeats_needed
from simulations.finding import Finding, share

TRIALS = 2000
FEW_TRIALS = 200
SPREAD = 0.01
"""Coefficient of variation of the repeats."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Pilot runs of one test, and what they lead to."""
    return [
        share(f"pilot of {n}: as many repeats as it says are enough", _enough(rng, n, trials), low=0.78)
        for n in (3, 5, 10)
    ]


def _enough(rng: np.random.Generator, n: int, trials: int) -> list[bool]:
    """Whether the interval of another run, with the repeats that a pilot asks for, is +- 1 %."""
    found = []
    for _ in range(trials):
        wanted = repeats_needed([(1.0, log_stat(_rates(rng, n)))])
        estimate = combine([(1.0, log_stat(_rates(rng, wanted)))]) if wanted else None
        found += [estimate is not None and estimate.half_width() <= np.log(1.01)] if wanted else []
    return found


def _rates(rng: np.random.Generator, n: int) -> list[float]:
    return [float(rate) for rate in np.exp(SPREAD * rng.standard_normal(n))]
