"""How often an equal node keeps a guarantee, and how often a node that just keeps it is said to break it; what a bid
with a noisy test changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, HOST_DAY_STD
from milabench_ng.tender.acceptance import Acceptance, accept
from simulations.finding import Finding, share
from simulations.model import Floats
from simulations.nodes import TESTS, WEIGHTS, Spread, drawn_node

TRIALS = 1000
FEW_TRIALS = 60
GUARANTEE = 0.95

DAYS = Spread(session=0.005)
"""A session varies as much as a repeat."""
DECLARED = Spread(gpu_machine=GPU_DAY_STD, host_machine=HOST_DAY_STD)
"""Of one session, whose day is all that a machine could do."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """The operating characteristic: nodes of known true ratios against a guarantee of 0.95."""
    found = []
    for what, repeats, sessions, spread in (
        ("1 session of 5 repeats, days differ as declared", 5, 1, DECLARED),
        ("1 session of 10 repeats, days differ as declared", 10, 1, DECLARED),
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
    return [*found, *_of_loud_bids(rng, trials)]


def _of_loud_bids(rng: np.random.Generator, trials: int) -> Iterator[Finding]:
    """One test of the bid, with a twentieth of the weight, differs by 10 % between sessions; or nothing is loud."""
    for what, loud, short in (
        ("an even bid", 0.0, 1.0),
        ("an uneven bid", 0.1, 1.0),
        ("an uneven bid", 0.1, 0.9),
        ("an uneven bid", 0.1, 0.75),
    ):
        ratios = np.where(np.arange(TESTS) == 0, np.log(short), 0.0)[:, None]
        made = [_decided(rng, 15, 3, (replace(DAYS, loud=loud), DAYS), ratios) for _ in range(trials)]
        kept = [one.verdict == "keeps" for one in made]
        low, high = 0.95 if short == 1 else -np.inf, 0.05 if short < 0.8 else np.inf
        yield share(f"{what}, one test at {short:g}: keeps", kept, low=low, high=high)
        yield share(f"{what}, one test at {short:g}: breaks", [one.verdict == "breaks" for one in made])


def _verdict(rng: np.random.Generator, repeats: int, sessions: int, spread: Spread, ratio: float) -> str:
    return _decided(rng, repeats, sessions, (spread, spread), float(np.log(ratio))).verdict


def _decided(
    rng: np.random.Generator, repeats: int, sessions: int, spreads: tuple[Spread, Spread], log_ratio: float | Floats
) -> Acceptance:
    """On a delivered node that is ``exp(log_ratio)`` times as fast as the bid; ``spreads`` are of bid and delivery."""
    bid = drawn_node(rng, repeats, sessions, spreads[0])
    delivered = drawn_node(rng, repeats, sessions, spreads[1], log_ratio)
    return accept(bid, delivered, {"standard": WEIGHTS}, GUARANTEE)
