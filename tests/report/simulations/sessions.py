"""How often the interval of a score or ratio holds the true one where sessions and machines differ."""

from __future__ import annotations

import numpy as np

from milabench_ng.analysis.scoring.other_machine import machine_variance, predicted
from milabench_ng.analysis.scoring.score import log_parts, scored_tests
from milabench_ng.analysis.statistics.intervals import WeightedStat, combine
from simulations.finding import Finding, share
from simulations.nodes import WEIGHTS, Spread, drawn_node

TRIALS = 4000
FEW_TRIALS = 200


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of ratios of two nodes that are equal but for their sessions or machines."""
    found = []
    for sessions, repeats in ((1, 5), (1, 10), (3, 6), (3, 15), (5, 10)):
        days = Spread(run=0.01, session=0.01)
        held = [_held(rng, repeats, sessions, days, declared=False) for _ in range(trials)]
        what = f"{sessions} session{'s' if sessions > 1 else ''}, {repeats} repeats in all"
        limits = {"low": 0.93, "high": 0.97} if sessions > 1 else {}
        found.append(share(f"{what}, which differ as much as repeats", held, **limits))
    machines = Spread(run=0.01, session=0.005, gpu_machine=0.02, host_machine=0.11)
    held = [_held(rng, 5, 1, machines, declared=True) for _ in range(trials)]
    found.append(share("1 session, 5 repeats, machines differ as declared", held, low=0.93))
    return found


def _held(rng: np.random.Generator, repeats: int, sessions: int, spread: Spread, *, declared: bool) -> bool:
    """Whether the interval holds the ratio of 1."""
    parts: list[WeightedStat] = []
    extra = 0.0
    for sign in (1.0, -1.0):
        rows = scored_tests(drawn_node(rng, repeats, sessions, spread), WEIGHTS)
        parts += [(sign * factor, stat) for factor, stat in log_parts(rows, list(WEIGHTS), WEIGHTS)]
        extra += machine_variance(rows, WEIGHTS) if declared else 0.0
    estimate = combine(parts)
    return estimate is not None and abs(predicted(estimate, extra).mean) <= predicted(estimate, extra).half_width()
