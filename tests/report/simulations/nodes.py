"""Made-up nodes whose repeats, sessions and machines vary, as the summaries that the report decides on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from rows import row_of

from milabench_ng.analysis.statistics.intervals import session_stat
from milabench_ng.analysis.summary.summary import Provenance, Stat, Summary, TestSummary
from simulations.model import RUN_CV, Floats

TESTS = 12
LABELS = tuple(f"standard.t{number:02d}" for number in range(TESTS))
WEIGHTS = {label: 4.0 if number % 4 == 0 else 8.0 for number, label in enumerate(LABELS)}
"""Like those of the standard suite."""
BOUNDS = tuple("cpu" if number % 3 == 0 else "gpu-compute" for number in range(TESTS))


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Standard deviations of logarithms. What a repeat, a session and a machine do, they do to all tests."""

    run: float = 0.005
    session: float = 0.0
    gpu_machine: float = 0.0
    host_machine: float = 0.0
    loud: float = 0.0
    """By how much the first test is slower in the first session and faster in the second, and so on."""


def drawn_node(
    rng: np.random.Generator,
    repeats: int,
    sessions: int,
    spread: Spread,
    log_ratio: float | Floats = 0.0,
    fail: Mapping[str, int] | None = None,
) -> Summary:
    """A node that is ``exp(log_ratio)`` times as fast as the usual one, with ``repeats`` in all.

    ``log_ratio``: of all tests, or of shape (tests, 1).
    """
    logs = log_ratio + _logs(rng, repeats, sessions, spread)
    place = {str(run): 1 + run * sessions // repeats for run in range(repeats)}
    tests = {
        label: _row(np.exp(logs[number]), place if sessions > 1 else {}, BOUNDS[number], (fail or {}).get(label, 0))
        for number, label in enumerate(LABELS)
    }
    at = Provenance(kind="measured", source="made up", hardware="1 x GPU")
    return Summary(suite="standard", units="true", devices=1, provenance=at, has_plan=True, tests=tests)


def _logs(rng: np.random.Generator, repeats: int, sessions: int, spread: Spread) -> Floats:
    """Of shape (tests, repeats)."""
    cv = np.exp(np.linspace(*np.log(RUN_CV), TESTS))[:, None]
    machine = np.where([bound == "cpu" for bound in BOUNDS], spread.host_machine * rng.standard_normal(), 0.0)
    machine += np.where([bound != "cpu" for bound in BOUNDS], spread.gpu_machine * rng.standard_normal(), 0.0)
    days = np.repeat(spread.session * rng.standard_normal(sessions), repeats // sessions)
    own = cv * rng.standard_normal((TESTS, repeats))
    own[0] += spread.loud * np.repeat(np.resize([-1.0, 1.0, 0.0], sessions), repeats // sessions)
    return np.asarray(own + machine[:, None] + days + spread.run * rng.standard_normal(repeats))


def _row(rates: Floats, sessions: Mapping[str, int], bound: str, fail: int) -> TestSummary:
    repeats = {str(run): float(rate) for run, rate in enumerate(rates)}
    mean, std = float(rates.mean()), float(rates.std())
    return row_of(
        n=len(rates) + fail,
        failures=fail,
        train=Stat(len(rates), float(rates.min()), float(rates.max()), mean, std),
        log_perf=session_stat(repeats, sessions),
        repeats=repeats,
        sessions=dict(sessions),
        planned=len(rates) + fail,
        tiers=("full",),
        unit="images",
        classic_factor=1.0,
        bound=bound,
        precision=("fp32",),
    )
