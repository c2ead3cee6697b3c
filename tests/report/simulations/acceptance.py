"""How often an equal node keeps a guarantee, and how often a node that just keeps it is said to break it."""

from __future__ import annotations

import numpy as np

from milabench_ng.report.procurement.acceptance import accept
from simulations.finding import Finding, share
from simulations.nodes import WEIGHTS, Spread, drawn_node

TRIALS = 1000
FEW_TRIALS = 60
GUARANTEE = 0.95

DAYS = Spread(session=0.005)
"""A session varies as much as a repeat."""
MACHINES = Spread(session=0.005, gpu_machine=0.02, host_machine=0.11)


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """The operating characteristic: nodes of known true ratios against a guarantee of 0.95."""
    found = []
    for what, repeats, sessions, spread in (
        ("1 session of 10 repeats, machines differ as declared", 10, 1, MACHINES),
        ("3 sessions of 2 repeats", 6, 3, DAYS),
        ("3 sessions of 5 repeats", 15, 3, DAYS),
    ):
        for ratio in (0.90, 0.93, 0.95, 0.97, 1.0):
            verdicts = [_verdict(rng, repeats, sessions, spread, ratio) for _ in range(trials)]
            true = f"{what}, true ratio {ratio:g}"
            equal = sessions == 3 and ratio == 1
            found.append(
                share(
                    f"{true}: keeps",
                    [verdict == "keeps" for verdict in verdicts],
                    low=0.8 if equal else -np.inf,
                    high=0.055 if ratio <= GUARANTEE else np.inf,
                )
            )
            high = 0.05 if ratio >= GUARANTEE else np.inf
            found.append(share(f"{true}: breaks", [verdict == "breaks" for verdict in verdicts], high=high))
    return found


def _verdict(rng: np.random.Generator, repeats: int, sessions: int, spread: Spread, ratio: float) -> str:
    bid, delivered = (drawn_node(rng, repeats, sessions, spread, at) for at in (0.0, float(np.log(ratio))))
    return accept(bid, delivered, {"standard": WEIGHTS}, GUARANTEE).verdict
