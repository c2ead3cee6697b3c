"""How far another machine, or the same one on another day, may lie from what was measured. Pure.

The repeats of one session share the machine, its temperature, its neighbours and the moment, so their spread says
nothing of another session. Sessions of one machine show how days differ, and no number of them shows how machines do.
So a variance between machines is always declared where the bids of several kinds are ranked, and one between days
where one particular node is judged by too few sessions. With it, an interval becomes one for what another machine of
the kind, or this one on another day, would show (a prediction interval: Hahn and Meeker, Statistical Intervals, 1991).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from milabench_ng.analysis.scoring.scored import ScoredRows
from milabench_ng.analysis.scoring.weights import Weights
from milabench_ng.analysis.statistics.intervals import SESSIONS_FROM, Estimate, Interval, t_quantile

ON_THE_GPU = ("gpu-compute", "gpu-memory")
"""Bounds of the tests whose pace the host does not set."""
GPU_STD = 0.02
"""Standard deviation between machines of a kind in tests that the GPU bounds. Between two H200 x 4 of one provider, the
rates of these tests lay within 2 %."""
HOST_STD = 0.11
"""The same for all other tests: CPUs, storage and kernel launches depend on the host. There they lay within 11 %."""
GPU_DAY_STD = 0.005
"""The same between days of one machine. Nodes of 2 x H200 lay within 0.8 % two days apart."""
HOST_DAY_STD = 0.05
"""The same for all other tests: what the host does on another day."""


def machine_variance(rows: ScoredRows, weights: Weights) -> float:
    """The variance of the log mean over the tests in ``weights`` between machines of a kind, each on some day.

    The days of this one are in it as far as its sessions do not show them.
    """
    return _by_class(rows, weights, GPU_STD, HOST_STD) + day_variance(rows, weights)


def day_variance(rows: ScoredRows, weights: Weights) -> float:
    """The same between days of one machine, as far as one side's sessions do not show it: 0 from three on."""
    return 0.0 if enough_sessions(rows, weights) else _by_class(rows, weights, GPU_DAY_STD, HOST_DAY_STD)


def enough_sessions(rows: ScoredRows, labels: Iterable[str]) -> bool:
    """Whether every test has sessions enough to show how much they differ."""
    return min(rows[label].session_count for label in labels) >= SESSIONS_FROM


def _by_class(rows: ScoredRows, weights: Weights, gpu_std: float, host_std: float) -> float:
    """A machine, or a day, is as fast or slow in all tests of a class."""
    total = math.fsum(weights.values())
    gpu = math.fsum(weight for label, weight in weights.items() if rows[label].bound in ON_THE_GPU) / total
    return (gpu_std * gpu) ** 2 + (host_std * (1 - gpu)) ** 2


def predicted(estimate: Estimate, declared: float) -> Estimate:
    """``estimate`` with a declared variance added, which is known without error (Satterthwaite 1946)."""
    if not declared:
        return estimate
    variance = estimate.variance + declared
    df = estimate.df * (variance / estimate.variance) ** 2 if estimate.variance else math.inf
    return msgspec.structs.replace(estimate, variance=variance, df=df)


def predicted_interval(known: Interval, declared: float) -> Interval:
    """The same for a computed interval."""
    half = math.log(known.high / known.value)
    error = half / t_quantile((1 + known.level) / 2, known.df)
    made = predicted(Estimate(mean=0.0, variance=error * error, df=known.df, n=known.n), declared)
    factor = math.exp(made.half_width(known.level))
    return msgspec.structs.replace(known, low=known.value / factor, high=known.value * factor, df=made.df)
