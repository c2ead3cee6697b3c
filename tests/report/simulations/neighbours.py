"""How often a neighbour is blamed who costs nothing, and how often one who costs 5 % is found: the matrix of slowdowns.

Rates have what the pairs must cancel, a level of each device and a drift over the run, and what they cannot: noise of
each launch, as large as the victim's, and the moment that the launches of a batch share.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from rows import row_of

from milabench_ng.analysis.scoring.neighbours import PACKED, Slowdown, fence_gains, slowdowns, worth_of_fence
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.summary import Stat, TestSummary
from simulations.finding import Finding, share
from simulations.model import RUN_CV

TRIALS = 1000
FEW_TRIALS = 40
DEVICES = 2
MOMENT = 0.005
"""What the launches of a batch have in common."""
DRIFT = 0.01
"""From one repeat to the next, for all alike."""
NEIGHBOURS = ("idle", "stream")
STEADY = 0.01
"""Spread of the victims whose slowdown must be found: that of most tests on GPUs."""
COSTS = 1.05
"""The made-up slowdown, beside ``stream``."""


class _Matrix(msgspec.Struct, frozen=True):
    """Victims, antagonists and repeats of a profile."""

    name: str
    victims: int
    besides: tuple[str, ...]
    repeats: int


QUICK = _Matrix("interference-quick, 2 GPUs", 2, NEIGHBOURS, 5)
WHOLE = _Matrix("interference, 2 GPUs", 5, (*NEIGHBOURS, "fma", "chase", "write", "pcie"), 5)


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Without a slowdown, with one in a single cell, and beside an idle neighbour."""
    found = []
    for matrix in (QUICK, WHOLE):
        what = f"{matrix.name}, {matrix.repeats} repeats"
        null = [_cells(rng, matrix, _noisy(matrix), {}) for _ in range(trials)]
        blamed = [any(cell.effect.verdict in ("better", "worse") for cell in cells) for cells in null]
        found.append(share(f"{what}, no slowdown: any is found", blamed, high=0.05))
        idle = [_holds(cell, 1.0) for cells in null for cell in cells if cell.beside == "idle"]
        found.append(share(f"{what}: beside an idle neighbour as alone, within the interval", idle, low=0.93))
        packed = [_holds(cell, 1.0) for cells in null for cell in cells if cell.beside == PACKED]
        found.append(share(f"{what}: packed as alone, within the interval", packed, low=0.93))
        worth = [_worth(rng, matrix) for _ in range(trials)]
        found.append(share(f"{what}: a fence that is worth nothing, within the interval", worth, low=0.93))
    for matrix in (QUICK, WHOLE):
        for repeats in (3, 5, 10):
            tried = msgspec.structs.replace(matrix, repeats=repeats)
            found.append(_power(rng, tried, trials, low=0.9 if repeats >= 10 else -np.inf))
    return found


def _worth(rng: np.random.Generator, matrix: _Matrix) -> bool:
    """Whether the interval of the mean over all cells holds 1 if the fence changes nothing."""
    fenced, unfenced = (_cells(rng, matrix, _noisy(matrix), {}) for _ in range(2))
    worth = worth_of_fence(fence_gains(fenced, unfenced))
    known = worth.effect.ratio if worth else None
    return known is not None and known.low <= 1 <= known.high


def _power(rng: np.random.Generator, matrix: _Matrix, trials: int, low: float) -> Finding:
    steady = dict.fromkeys(_noisy(matrix), STEADY)
    slowed = [_cells(rng, matrix, steady, {("v0", "stream"): COSTS}) for _ in range(trials)]
    hits = [cell.sure for cells in slowed for cell in cells if (cell.victim, cell.beside) == ("v0", "stream")]
    return share(f"{matrix.name}, {matrix.repeats} repeats, spread 1%, one 5% slower: it is found", hits, low=low)


def _holds(cell: Slowdown, truth: float) -> bool:
    known: Interval | None = cell.effect.ratio
    return known is not None and known.low <= truth <= known.high


def _noisy(matrix: _Matrix) -> dict[str, float]:
    """Victims differ in noise."""
    return {f"v{at}": float(cv) for at, cv in enumerate(np.geomspace(*RUN_CV, matrix.victims))}


def _cells(
    rng: np.random.Generator, matrix: _Matrix, spreads: Mapping[str, float], slower: Mapping[tuple[str, str], float]
) -> tuple[Slowdown, ...]:
    tests: dict[str, TestSummary] = {}
    for victim, spread in spreads.items():
        for beside in ("", PACKED, *matrix.besides):
            rates = _rates(rng, matrix.repeats, spread, packed=beside == PACKED) / slower.get((victim, beside), 1.0)
            tests[f"i.{victim}{beside and '_' + beside}"] = _row(rates, victim, beside)
    return slowdowns(tests)


def _rates(rng: np.random.Generator, repeats: int, spread: float, *, packed: bool) -> np.ndarray:
    """Of shape (repeats, devices): a batch per repeat where all work at once, else one per device."""
    moments = rng.standard_normal((repeats, 1 if packed else DEVICES))
    logs = spread * rng.standard_normal((repeats, DEVICES)) + MOMENT * moments
    return np.asarray(np.exp(logs - DRIFT * np.arange(repeats)[:, None] + 0.05 * np.arange(DEVICES)))


def _row(rates: np.ndarray, victim: str, beside: str) -> TestSummary:
    launches = {f"{run}.{at}": float(rate) for run, row in enumerate(rates) for at, rate in enumerate(row)}
    company: dict[str, float] | None = None if beside == PACKED else {beside: 1.0} if beside else {}
    return row_of(
        n=rates.size,
        failures=0,
        train=Stat.of(list(launches.values())),
        launches=launches,
        repeats={str(run): float(row.mean()) for run, row in enumerate(rates)},
        unit="items",
        classic_factor=1.0,
        workload=victim,
        options={"victim": victim},
        company=company,
    )
