"""Estimates a run's duration: the least before it begins, then the rest from its own pace. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from milabench_ng.model.plan import Batch, Plan, session_of
from milabench_ng.model.stats import mean
from milabench_ng.records.window import WindowRule
from milabench_ng.run.execution.pacing import EDGE_S
from milabench_ng.run.execution.watchdog import START_S, least_work_s

SERVER_S = 5.0
"""Allowance for importing torch and the workloads, once per run."""


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """Least duration of a run, in seconds. Work counts, slow steps and data generation come on top."""

    work_s: float
    """From the common start to the common stop, over all batches."""
    start_s: float
    """The allowances for everything in between."""

    @property
    def total_s(self) -> float:
        """The sum of both."""
        return self.work_s + self.start_s


def least_duration(plan: Plan, rule: WindowRule, start: Literal["warm", "cold"]) -> Duration:
    """The least time that ``plan`` takes: a full window for every batch, and the allowances."""
    return Duration(
        work_s=sum(least_batch_s(batch, rule) for batch in plan.batches),
        start_s=SERVER_S + allowance_s(start) * len(plan.batches),
    )


def least_batch_s(batch: Batch, rule: WindowRule) -> float:
    """The least time from the common start of a batch to its stop."""
    return max(least_work_s(launch.arguments, rule) for launch in batch.launches)


def allowance_s(start: Literal["warm", "cold"]) -> float:
    """Time allowed for a batch beyond its work."""
    return START_S[start] + 2 * EDGE_S


def between_sessions_s(now: Batch, later: Iterable[Batch], plan: Plan, sessions: int, gap_s: float) -> float:
    """What goes by between the sessions of ``later`` batches and that of the batch ``now``, and to begin them."""
    numbers = {session_of(batch.launches[0].run, plan.repeat, sessions) for batch in (now, *later)}
    return (len(numbers) - 1) * (gap_s + SERVER_S)


def time_left_s(least_s: Sequence[float], beyond_s: Sequence[float], start: Literal["warm", "cold"]) -> float:
    """Estimated time for the remaining batches, each of which takes at least its ``least_s``.

    ``beyond_s``: how much longer each finished batch took; before the first, the allowance is used.
    """
    each = mean(beyond_s) if beyond_s else allowance_s(start)
    return sum(least_s) + each * len(least_s)
