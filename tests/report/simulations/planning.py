"""Whether what a report says of the next run comes true: a detectable difference, and the repeats for +-1 %."""

from __future__ import annotations

import numpy as np

from milabench_ng.report.statistics.effects import effect
from milabench_ng.report.statistics.intervals import combine, log_stat, repeats_needed
from simulations.finding import Finding, share

TRIALS = 2000
FEW_TRIALS = 200
SPREAD = 0.01
"""Coefficient of variation of the repeats."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Pilot runs of one test, and what they lead to."""
    found = [
        share(f"pilot of {n}: as many repeats as it says are enough", _enough(rng, n, trials), low=0.78)
        for n in (3, 5, 10)
    ]
    found += [
        share(
            f"{n} repeats, margin {margin:.1%}: the smallest detectable difference is called",
            _called(rng, n, margin, trials),
            low=0.75,
        )
        for n in (5, 10, 20)
        for margin in (0.001, 0.02, 0.05)
    ]
    return found


def _enough(rng: np.random.Generator, n: int, trials: int) -> list[bool]:
    """Whether the interval of another run, with the repeats that a pilot asks for, is +- 1 %."""
    found = []
    for _ in range(trials):
        wanted = repeats_needed([(1.0, log_stat(_rates(rng, n)))])
        estimate = combine([(1.0, log_stat(_rates(rng, wanted)))]) if wanted else None
        found += [estimate is not None and estimate.half_width() <= np.log(1.01)] if wanted else []
    return found


def _called(rng: np.random.Generator, n: int, margin: float, trials: int) -> list[bool]:
    """Whether a true difference of what the mean pilot can detect is called better."""
    pilots = [effect([(1.0, log_stat(_rates(rng, n))), (-1.0, log_stat(_rates(rng, n)))], margin) for _ in range(200)]
    faster = 1 + float(np.mean([one.mde_pct or 0.0 for one in pilots])) / 100
    return [
        effect([(1.0, log_stat(_rates(rng, n, faster))), (-1.0, log_stat(_rates(rng, n)))], margin).verdict == "better"
        for _ in range(trials)
    ]


def _rates(rng: np.random.Generator, n: int, level: float = 1.0) -> list[float]:
    return [float(rate) for rate in level * np.exp(SPREAD * rng.standard_normal(n))]
