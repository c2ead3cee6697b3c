"""How often the interval holds the truth, if repeats resemble the one before: a host that wanders."""

from __future__ import annotations

import numpy as np

from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.statistics.intervals import combine, stat_of_logs
from simulations.finding import Finding, share
from simulations.model import Floats
from simulations.runs import run_of

TRIALS = 10_000
FEW_TRIALS = 1000
TESTS = 8
SECONDS = 45.0
"""Of a launch, with its start: eight tests make repeats of 6 minutes."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Under twelve repeats nothing is corrected, so these are only shown."""
    found = []
    for n in (5, 10, 15, 20, 30):
        low = 0.93 if n >= 15 else -np.inf
        for rho in (0.0, 0.3, 0.5):
            held = [_held(one) for one in _following(rng, trials, n, rho)]
            high = 0.97 if n >= 15 else np.inf
            found.append(share(f"{n} repeats, correlation {rho:g} with the next", held, low=low, high=high))
        held = [_held(one) for one in _wandering(rng, trials, n).mean(axis=1)]
        found.append(share(f"{n} repeats, a host that wanders over 10 minutes, interleaved", held, low=low))
    runs = np.exp(0.01 * _wandering(rng, 50, 5))
    weights = {f"s.{test}": 1.0 for test in range(TESTS)}
    serial = [score(run_of(one[:, None, :], "file"), weights).interval is None for one in runs]
    return [*found, share("5 repeats in file order: no interval", serial, low=1.0)]


def _following(rng: np.random.Generator, trials: int, n: int, rho: float) -> Floats:
    """Of shape (trials, n), each value correlated with the one before."""
    steps = rng.standard_normal((trials, n))
    values = steps.copy()
    for place in range(1, n):
        values[:, place] = rho * values[:, place - 1] + np.sqrt(1 - rho * rho) * steps[:, place]
    return values


def _wandering(rng: np.random.Generator, trials: int, n: int) -> Floats:
    """Of shape (trials, tests, n): what a host does that forgets within 10 minutes, and noise as large."""
    host = _following(rng, trials, n * TESTS, float(np.exp(-SECONDS / 600)))
    moments = host.reshape(trials, n, TESTS).transpose(0, 2, 1)
    return np.asarray(moments + rng.standard_normal(moments.shape))


def _held(logs: Floats) -> bool:
    estimate = combine([(1.0, stat_of_logs([float(each) for each in logs]))])
    return estimate is not None and abs(estimate.mean) <= estimate.half_width()
