"""The score with its charge for spread: its bias at few repeats, and how often the interval holds the true one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from milabench_ng.analysis.scoring.score import charged_parts, score, scored_tests
from milabench_ng.analysis.statistics.intervals import combine, interval
from milabench_ng.analysis.summary.summary import Summary
from simulations.finding import Finding, average, share
from simulations.model import Floats
from simulations.runs import run_of

TRIALS = 2000
FEW_TRIALS = 150
TESTS = 8
CV, DEVICES_CV = 0.05, 0.02
"""Coefficients of variation from repeat to repeat, and of devices that stay as they are."""
WEIGHTS = {f"s.{test}": 1.0 for test in range(TESTS)}


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of tests that all spread by 5 %."""
    found = []
    for devices in (1, 2, 8):
        of = f"{devices} device{'s' * (devices > 1)}"
        spread = np.sqrt(CV**2 + (DEVICES_CV**2 if devices > 1 else 0.0))
        truth = 1 - spread
        one = [(score(run_of(_rates(rng, devices, 1)), WEIGHTS).per_device or 0.0) / truth - 1 for _ in range(trials)]
        found.append(average(f"{of}, 1 repeat: classic score, mean error", one))
        for n in (3, 5, 10, 20):
            runs = [run_of(_rates(rng, devices, n)) for _ in range(trials)]
            made = [score(run, WEIGHTS) for run in runs]
            what = f"{of}, {n} repeats"
            found.append(
                average(f"{what}: classic score, mean error", [(each.per_device or 0.0) / truth - 1 for each in made])
            )
            known = [each.interval for each in made if each.interval is not None]
            if known:
                found += _many(what, runs, truth)
                held = [at.low <= truth <= at.high for at in known]
                found.append(share(f"{what}: its interval holds the true score", held, low=0.93))
    return found


def _many(what: str, runs: Sequence[Summary], truth: float) -> list[Finding]:
    """Of what many repeats would give, before the interval is widened to the score itself."""
    rows = [scored_tests(run, WEIGHTS) for run in runs]
    estimates = [combine(charged_parts(each, list(WEIGHTS), WEIGHTS)) for each in rows]
    many = [known for one in estimates if one is not None and (known := interval(one)) is not None]
    return [
        average(f"{what}: score of many repeats, mean error", [at.value / truth - 1 for at in many], -0.005, 0.005),
        share(f"{what}: the interval of it holds it", [at.low <= truth <= at.high for at in many], 0.93, 0.97),
    ]


def _rates(rng: np.random.Generator, devices: int, n: int) -> Floats:
    """Of shape (tests, devices, repeats). The devices differ in the same way in every run."""
    offsets = np.linspace(-1, 1, devices) if devices > 1 else np.zeros(1)
    fixed = 1 + DEVICES_CV * offsets / (offsets.std() or 1.0)
    return fixed[None, :, None] + CV * rng.standard_normal((TESTS, 1, n)) * np.ones((1, devices, 1))
