"""What intervals hold where one repeat in ten is 15 % slow, and how often repeats are called slow for nothing.

Intervals are held against two figures: the mean over many repeats, slow ones included, and that of the usual ones
alone. *Before* is the interval before it is widened. What no repeat of a run shows is in neither.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from honest import unpacked

from milabench_ng.analysis.scoring.score import charged_parts, log_parts, scored_tests
from milabench_ng.analysis.statistics.intervals import Estimate, WeightedStat, combine
from milabench_ng.analysis.statistics.slow_repeats import slow_places
from milabench_ng.verification.opening import load_result
from simulations.finding import Finding, share
from simulations.model import RUN_CV, Floats
from simulations.runs import run_of

TRIALS = 2000
FEW_TRIALS = 100
TESTS = 12
CV = np.exp(np.linspace(*np.log(RUN_CV), TESTS))[:, None]
WEIGHTS = {f"s.{test}": 4.0 if test % 4 == 0 else 8.0 for test in range(TESTS)}
SHARES = np.array(list(WEIGHTS.values())) / sum(WEIGHTS.values())
SLOW, PART = 0.15, 0.1
NONE, SHARED, OWN = np.zeros((1, 1)), np.full((1, 1), PART), np.full((TESTS, 1), PART)
"""How likely a repeat is slow: of all tests together, or of each test by itself."""
OFTEN = 0.06
"""The largest part of honest runs of twelve tests, of which some are noisy, in which a repeat may be called slow."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of a throughput and of a charged score, at five and ten repeats; and of repeats as noisy as measured ones."""
    found = []
    for kind, parts in (("none is", NONE), ("one in ten is, in all tests", SHARED), ("one in ten is, alone", OWN)):
        many = [_rates(rng, 100_000, each) for each in (parts, NONE)]
        for n in (5, 10):
            runs = [_estimates(_rates(rng, n, parts)) for _ in range(trials)]
            for figure, truth in (("throughput", _throughput), ("score", _charged)):
                known, what = [run[figure] for run in runs], f"{n} repeats, of which {kind} slow: {figure}"
                found += _held(what, known, tuple(map(truth, many)), limits=_limits(parts))
            called = [run["throughput"].moved > 0 for run in runs]
            high = OFTEN if parts is NONE else np.inf
            found.append(share(f"{n} repeats, of which {kind} slow: one is called slow", called, high=high))
    with tempfile.TemporaryDirectory() as place:
        return [*found, *_as_measured(rng, trials, unpacked(Path(place)))]


def _limits(parts: Floats) -> Mapping[str, float]:
    """What is claimed; the usual mean of noisy tests is not where their slow repeats are lost in the noise."""
    if parts is OWN:
        return {"mean of all": 0.93}
    return {"usual mean": 0.93} | (
        {"mean of all": 0.93} if parts is NONE else {"mean of all, where one is named": 0.93}
    )


def _held(
    what: str, known: list[Estimate], truths: tuple[float, ...], limits: Mapping[str, float]
) -> Iterator[Finding]:
    """``truths``: with slow repeats, and without."""
    named = [one for one in known if one.moved]
    for name, truth, of in (
        ("mean of all", truths[0], known),
        ("mean of all, where one is named", truths[0], named),
        ("usual mean", truths[1], known),
    ):
        if of:
            before = [abs(one.mean - truth) <= one.half_width() - one.moved for one in of]
            now = [abs(one.mean - truth) <= one.half_width() for one in of]
            yield share(f"{what} holds the {name}, before", before)
            yield share(f"{what} holds the {name}, widened", now, low=limits.get(name, -np.inf))


def _as_measured(rng: np.random.Generator, trials: int, folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Runs with the spread of each test in the honest folders with three repeats, which are too few to be judged."""
    for name, path in folders.items():
        rows = load_result(path).tests.values()
        stds = [row.log_perf.std for row in rows if row.log_perf and row.log_perf.n == 3 and row.log_perf.std]
        for n in (5, 10) if len(stds) > 3 else ():
            drawn = np.array(stds)[:, None] * rng.standard_normal((trials, len(stds), n))
            called = [any(slow_places(test.tolist()) for test in run) for run in drawn]
            yield share(f"{n} repeats as noisy as in {name}: one of {len(stds)} tests has a slow one", called)


def _rates(rng: np.random.Generator, n: int, parts: Floats) -> Floats:
    """Of shape (tests, repeats). A repeat does 0.5 % to all tests."""
    logs = CV * rng.standard_normal((TESTS, n)) + 0.005 * rng.standard_normal(n)
    return np.asarray(np.exp(logs) * np.where(rng.random((len(parts), n)) < parts, 1 - SLOW, 1.0))


def _estimates(rates: Floats) -> dict[str, Estimate]:
    rows = scored_tests(run_of(rates[:, None, :]), WEIGHTS)
    of = {"throughput": log_parts, "score": charged_parts}
    return {name: _combined(parts(rows, list(WEIGHTS), WEIGHTS)) for name, parts in of.items()}


def _combined(parts: list[WeightedStat]) -> Estimate:
    found = combine(parts)
    assert found is not None
    return found


def _throughput(many: Floats) -> float:
    return float(SHARES @ np.log(many).mean(axis=1))


def _charged(many: Floats) -> float:
    return float(SHARES @ np.log(many.mean(axis=1) - many.std(axis=1)))
