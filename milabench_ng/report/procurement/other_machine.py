"""How far another machine, or the same one on another day, may lie from what was measured. Pure.

The repeats of one session share the machine, its temperature, its neighbours and the moment, so their spread says
nothing of another session. A decision between two machines needs sessions that differ (their means are then what
varies, see `LogStat`), or a variance that is declared: with it, an interval becomes one for what another machine of
the kind would show (a prediction interval: Hahn and Meeker, Statistical Intervals, 1991).
"""

from __future__ import annotations

import math

import msgspec

from milabench_ng.report.scoring.scored import ScoredRows
from milabench_ng.report.scoring.weights import Weights
from milabench_ng.report.statistics.intervals import SESSIONS_FROM, Estimate, Interval, t_quantile

ON_THE_GPU = ("gpu-compute", "gpu-memory")
"""Bounds of the tests whose pace the host does not set."""
GPU_STD = 0.02
"""Standard deviation between machines of a kind in tests that the GPU bounds. Between two H200 x 4 of one provider, the
rates of these tests lay within 2 %."""
HOST_STD = 0.11
"""The same for all other tests: CPUs, storage and kernel launches depend on the host. There they lay within 11 %."""


def unseen(rows: ScoredRows, weights: Weights) -> float:
    """The variance of the log mean over the tests in ``weights`` that one side's sessions do not show.

    0 from three sessions on. Otherwise the declared one: a machine is as fast or slow in all tests of a class.
    """
    if min(rows[label].session_count for label in weights) >= SESSIONS_FROM:
        return 0.0
    total = math.fsum(weights.values())
    gpu = math.fsum(weight for label, weight in weights.items() if rows[label].bound in ON_THE_GPU) / total
    return (GPU_STD * gpu) ** 2 + (HOST_STD * (1 - gpu)) ** 2


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
