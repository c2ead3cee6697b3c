"""How often the interval of a score holds the truth, if launches are missing and the tests of a repeat share luck."""

from __future__ import annotations

import numpy as np

from milabench_ng.analysis.scoring.score import score
from simulations.finding import Finding, share
from simulations.model import RUN_CV
from simulations.runs import run_of

TRIALS = 2000
FEW_TRIALS = 150
TESTS = 8


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of runs on one device, without a charge for spread, whose score has no bias."""
    return [
        share(
            f"{n} repeats that share {shared:.1%}, {lost} of {TESTS * n} launches lost",
            [_covered(rng, n, shared, lost) for _ in range(trials)],
            low=0.93,
            high=0.97,
        )
        for n in (5, 10)
        for shared in (0.005, 0.01, 0.02)
        for lost in (1, TESTS)
    ]


def _covered(rng: np.random.Generator, n: int, shared: float, lost: int) -> bool:
    """Each of so many tests has lost one launch."""
    cv = np.exp(np.linspace(*np.log(RUN_CV), TESTS))[:, None]
    rates = np.exp(cv * rng.standard_normal((TESTS, n)) + shared * rng.standard_normal(n))
    for test in range(lost):
        rates[test, rng.integers(n)] = np.nan
    weights = {f"s.{test}": 4.0 if test % 4 == 0 else 8.0 for test in range(TESTS)}
    known = score(run_of(rates[:, None, :]), weights, penalize_variance=False).interval
    assert known is not None
    failed = sum(weights[f"s.{test}"] for test in range(lost)) / sum(weights.values())
    truth = np.exp(failed * np.log1p(-1 / n) + (cv[:, 0] ** 2 + shared**2).mean() / 2)
    return bool(known.low <= truth <= known.high)
