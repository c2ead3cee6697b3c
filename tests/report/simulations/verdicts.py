"""How often a verdict on a ratio is false, over all tests and in the table of tests; and how often one is given."""

from __future__ import annotations

import numpy as np

from simulations.finding import Finding, share
from simulations.model import MARGIN, Floats, by_repeat, each, holm, rates, sums, weights

TRIALS = 20_000
FEW_TRIALS = 2000
TESTS = 12
REPEATS = (5, 10, 20)
RATIOS = (1.0, 1.01, 1.015, 1.02, 1.03, 1.05)
MIXTURES = (
    (1.02, 1.0, 1.05, 1 / 1.02),
    (1.02, 1.02, 1.10, 1.10),  # those that are easy to call leave more room to the others
    (1.015, 1.025, 1.0, 1.02),
)
"""True ratios of every four tests."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """At a margin of 2 %. False: different within it, equivalent or the wrong way beyond it, anything at its edge."""
    found = []
    for n in REPEATS:
        for ratio in RATIOS:
            found += _whole(f"{n} repeats, all tests {ratio:g}", rng, n, trials, np.full(TESTS, _log(ratio)))
        for ratios in MIXTURES:
            truths = np.tile([_log(ratio) for ratio in ratios], TESTS // 4)
            what = f"{n} repeats that share 0.5%, tests {', '.join(f'{ratio:.3g}' for ratio in ratios)}"
            found.append(share(f"{what}: any false in the table", _false(rng, n, trials, truths), high=0.05))
    return found


def _log(ratio: float) -> float:
    """Exactly at the edge where the ratio is."""
    return MARGIN if ratio == 1.02 else -MARGIN if ratio == 1 / 1.02 else float(np.log(ratio))


def _whole(what: str, rng: np.random.Generator, n: int, trials: int, truths: Floats) -> list[Finding]:
    run, base = (by_repeat(rates(rng, TESTS, n, trials, effect=at), weights(TESTS)) for at in (truths, 0.0))
    whole = sums(run, base, np.ones(1))
    far, same = truths[0] >= np.log(1.05), not truths[0]
    return [
        share(f"{what}: different", whole.different(whole.p), low=0.99 if far else -np.inf),
        share(f"{what}: equivalent", whole.equivalent(whole.p), low=0.95 if same else -np.inf),
        share(f"{what}: false", whole.false(whole.p, float(weights(TESTS) @ truths)), high=0.055),
        share(f"{what}: any false in the table", _false(rng, n, trials, truths), high=0.05),
    ]


def _false(rng: np.random.Generator, n: int, trials: int, truths: Floats) -> Floats:
    """Whether any verdict in the table of tests is false. A repeat's tests have 0.5 % in common."""
    run, base = (rates(rng, TESTS, n, trials, effect=at, shared=0.005) for at in (truths, 0.0))
    single = each(run, base)
    adjusted = holm(np.array([one.p for one in single]))
    return np.array([one.false(p, at) for one, p, at in zip(single, adjusted, truths, strict=True)]).any(axis=0)
