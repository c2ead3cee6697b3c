"""How often equal bids are ranked apart, a cheaper one is found, and one that fails too often has a rank."""

from __future__ import annotations

import numpy as np

from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.report.reporting import build_report
from milabench_ng.tender.ranking import rank
from simulations.finding import Finding, share
from simulations.nodes import LABELS, WEIGHTS, Spread, drawn_node

TRIALS = 1000
FEW_TRIALS = 60

DAYS = Spread(session=0.005)
"""A session varies as much as a repeat."""
MACHINES = Spread(session=0.005, gpu_machine=0.02, host_machine=0.11)


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Three bids of equal prices; machines always differ as declared, also by three sessions."""
    found = []
    for what, repeats, sessions, spread in (
        ("1 session of 5 repeats, machines differ as declared", 5, 1, MACHINES),
        ("1 session of 10 repeats, machines differ as declared", 10, 1, MACHINES),
        ("3 sessions of 2 repeats, machines differ as declared", 6, 3, MACHINES),
        ("3 sessions of 5 repeats, machines differ as declared", 15, 3, MACHINES),
        ("3 sessions of 5 repeats of one machine", 15, 3, DAYS),
    ):
        apart = [len(set(_ranks(rng, repeats, sessions, spread, 0.0).values())) > 1 for _ in range(trials)]
        found.append(share(f"{what}: equal bids are ranked apart", apart, high=0.05))
    first = [_first(_ranks(rng, 15, 3, DAYS, np.log(1.03))) for _ in range(trials)]
    found.append(share("3 sessions of 5 repeats, one bid 3% faster: it alone is first", first))
    failing = ["c" in _ranks(rng, 6, 3, DAYS, np.log(1.03), fail=1) for _ in range(trials)]
    found.append(share("1 of 7 launches fails, 3% faster: it has a rank", failing, high=0))
    return found


def _ranks(
    rng: np.random.Generator, repeats: int, sessions: int, spread: Spread, log_ratio: float, fail: int = 0
) -> dict[str, int]:
    """Of three bids, the last of which is faster, or fails in every test."""
    nodes = {name: drawn_node(rng, repeats, sessions, spread) for name in "ab"}
    nodes["c"] = drawn_node(rng, repeats, sessions, spread, log_ratio, dict.fromkeys(LABELS, fail))
    reports = {name: build_report(made, name, scale=Scale(weights=WEIGHTS)) for name, made in nodes.items()}
    return rank(reports, dict.fromkeys(reports, 1.0), WEIGHTS)[0]


def _first(ranks: dict[str, int]) -> bool:
    return [name for name, at in ranks.items() if at == 1] == ["c"]
