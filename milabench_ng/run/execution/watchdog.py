"""Time limits of a launch, and what it is late with when one has passed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import TimeLimits
from milabench_ng.records.window import WindowRule

START_S = {"warm": 2.0, "cold": 8.0}
"""Allowance for one batch on top of its work: conditions, page cache, start to ready, stop, records."""
PAUSE_S = 1.0
"""A process that is on its CPU when it wants to be is never so late."""
AGREEMENT_STEPS = 16
"""More steps than the ranks of a launch need to agree to end."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the watchdog tolerates, in seconds."""

    ready_s: float = 300.0
    """Limit from the request to ``ready``."""
    silence_s: float = 120.0
    """Limit between two slices, from start to stop."""
    end_s: float = 60.0
    """Limit from the stop to the end of the process."""
    total_s: float = 1080.0
    """Limit from the request to the end of the process."""


class Pause(msgspec.Struct, frozen=True):
    """A time in which the orchestrator stood still: it was stopped, or the machine was."""

    end_s: float
    length_s: float


class LaunchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a launch (monotonic times); None for what it has not reached."""

    asked_s: float
    ready: bool
    start_s: float | None
    stop_s: float | None
    heard_s: float
    """Time of its last slice."""
    longest_slice_s: float
    pauses: tuple[Pause, ...] = ()


def least_work_s(arguments: Mapping[str, Scalar | None], rule: WindowRule) -> float:
    """Least seconds from start to stop of a launch: a full window, or ``max_seconds`` if that ends it earlier."""
    limit = arguments.get("max_seconds")
    return min(rule.total_s, limit) if isinstance(limit, int | float) else rule.total_s


def limits_for(
    test: str,
    arguments: Mapping[str, Scalar | None],
    rule: WindowRule,
    start: Literal["warm", "cold"],
    asked: TimeLimits,
) -> Limits:
    """The limits of a launch of ``test``: those ``asked`` for, the others derived from its work.

    Raises InputError if the launch could not end in time even if all goes well.
    """
    whole = Limits()
    longest = max(float(arguments.get("max_seconds") or 0.0), least_work_s(arguments, rule))
    slice_s = float(arguments.get("sample_duration") or 0.0)
    ready_s = asked.ready or max(whole.ready_s, 60 * START_S[start])
    silence_s = asked.silence or max(whole.silence_s, 10 * slice_s)
    end_s = asked.end or whole.end_s
    total_s = asked.total or ready_s + longest + silence_s + end_s
    least_s = least_work_s(arguments, rule)
    if total_s <= least_s:
        raise InputError(
            f"test {test}: its total time limit of {total_s:g} s is shorter than its work of "
            f"{least_s:g} s. Raise the limit, or leave out the test"
        )
    return Limits(ready_s=ready_s, silence_s=silence_s, end_s=end_s, total_s=total_s)


def pauses(due_s: float, now_s: float) -> tuple[Pause, ...]:
    """The pause before ``now_s`` of a process that was to go on at ``due_s``, if it was one. Pure."""
    return (Pause(now_s, now_s - due_s),) if now_s - due_s > PAUSE_S else ()


def overdue(progress: LaunchProgress, limits: Limits, now_s: float) -> str | None:
    """What a launch is late with; None if it is on time. Pauses of the orchestrator do not count."""

    def waited_s(since_s: float) -> float:
        return now_s - since_s - sum(pause.length_s for pause in progress.pauses if pause.end_s > since_s)

    if waited_s(progress.asked_s) > limits.total_s:
        return f"still running {limits.total_s:.0f} s after it was requested"
    if not progress.ready:
        late = waited_s(progress.asked_s) > limits.ready_s
        return f"not ready {limits.ready_s:.0f} s after it was requested" if late else None
    if progress.stop_s is not None:
        # Ranks agree on a last step some steps ahead.
        patience_s = limits.end_s + AGREEMENT_STEPS * progress.longest_slice_s
        return f"still running {patience_s:.0f} s after the stop" if waited_s(progress.stop_s) > patience_s else None
    if progress.start_s is not None and waited_s(max(progress.heard_s, progress.start_s)) > limits.silence_s:
        return f"no slice for {limits.silence_s:.0f} s"
    return None
