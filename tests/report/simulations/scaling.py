"""How often a knee of scaling is called where each device adds what the first one does, and where there is one."""

from __future__ import annotations

import numpy as np
from rows import row_of

from milabench_ng.analysis.scoring.scaling import scaling_curves
from milabench_ng.analysis.scoring.scored import scored_tests
from milabench_ng.analysis.summary.summary import Provenance, Stat, Summary
from simulations.finding import Finding, share

TRIALS = 1000
FEW_TRIALS = 100
DEVICES = 8
NOISE = 0.04
"""From repeat to repeat."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Eight devices; the knee, if there is one, is at 4: each further device adds a fifth of what the first does."""
    found = []
    for repeats in (1, 5, 10):
        what = f"{repeats} repeat{'s' if repeats > 1 else ''}, noise {NOISE:.0%}"
        ideal = [_knee(rng, repeats, 1.0) is not None for _ in range(trials)]
        found.append(share(f"{what}, ideal scaling: a knee is called", ideal, high=0.05))
        bent = [_knee(rng, repeats, 0.2) is not None for _ in range(trials)]
        found.append(share(f"{what}, a knee at 4: one is called", bent))
    return found


def _knee(rng: np.random.Generator, repeats: int, added: float) -> int | None:
    tests = {}
    for count in range(1, DEVICES + 1):
        together = min(count, 4) + added * max(0, count - 4)
        rates = together / count * np.exp(NOISE * rng.standard_normal(repeats))
        tests[f"standard.scaling.{count}"] = row_of(
            n=repeats,
            failures=0,
            train=Stat.of(rates.tolist()),
            repeats={str(run): float(rate) for run, rate in enumerate(rates)},
            classic_factor=1.0,
            devices=count,
        )
    at = Provenance(kind="measured", source="made up", hardware="8 x GPU")
    made = Summary(suite="standard", units="true", devices=DEVICES, provenance=at, has_plan=True, tests=tests)
    (curve,) = scaling_curves(scored_tests(made, None), tests)
    return curve.knee
