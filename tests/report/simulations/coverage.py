"""How often the nominal 95 % interval of a score or of a ratio holds the true one."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulations.finding import Finding, share
from simulations.model import by_repeat, rates, sums, weights

TRIALS = 20_000
FEW_TRIALS = 2000
REPEATS = (3, 5, 10, 20)
COMPLETE: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("one test, ratio", 1, 2, {}),
    ("score, 12 tests", 12, 1, {}),
    ("ratio, 12 tests", 12, 2, {}),
    ("ratio, 18 tests", 18, 2, {}),
    ("ratio, 12 tests, 5% of repeats 10% slow", 12, 2, {"outliers": 0.05}),
    ("ratio, 12 tests, repeats share 0.5%", 12, 2, {"shared": 0.005}),
)
"""What, tests, sides, and how the rates vary."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of complete runs: every test has every repeat."""
    return [
        share(f"{what}, {n} repeats", _covered(rng, trials, tests, n, sides, how), low=0.93, high=0.97)
        for what, tests, sides, how in COMPLETE
        for n in REPEATS
    ]


def _covered(rng: np.random.Generator, trials: int, tests: int, n: int, sides: int, how: dict[str, Any]) -> np.ndarray:
    drawn = [by_repeat(rates(rng, tests, n, trials, **how), weights(tests)) for _ in range(sides)]
    return sums(drawn[0], drawn[1] if sides == 2 else None, np.ones(1)).covers(0.0)
