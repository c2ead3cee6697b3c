"""Finds why a launch failed, from everything known about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.fence import isolation_check as fence_evidence
from milabench_ng.fence.entry import EXIT_REFUSED
from milabench_ng.model.events import Checked, Failed
from milabench_ng.records.record import Failure
from milabench_ng.records.window import MIN_STEPS, Window
from milabench_ng.run.execution.group_evidence import GroupEvidence
from milabench_ng.run.execution.tenant import RankLog


class LaunchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a launch that has ended."""

    exit_status: int | None
    """None for a process that could not be killed."""
    full: bool
    """Whether it reported a full window, which the slice under way at the stop may have filled too late."""
    window: Window | None
    timed_out: str | None
    """What the watchdog waited for."""
    interrupted: bool
    """Whether the run was interrupted before it failed by itself."""
    device: Failure | None
    """What happened to its device, according to NVML."""
    harness_error: str = ""
    """What kept it from working, if that was mnb itself."""
    broken_protocol: str
    failures: Sequence[Failed]
    device_names: Sequence[str] = ()
    """Those of the ranks, in words."""
    start_s: float | None = None
    """When it began to work (monotonic)."""


def judge(
    outcome: LaunchOutcome, ranks: Sequence[RankLog], evidence: Mapping[str, GroupEvidence], limits: Mapping[str, int]
) -> Failure | None:
    """The first cause that applies, from the outside in: fence, watchdog, worker, numbers; None if all is well.

    ``limits``: bytes of RAM by slot.
    """
    found = [_by_fence(seen, limits[slot], outcome) for slot, seen in evidence.items()]
    by_fence = next((failure for failure in found if failure), None)
    outside = ("isolation_lost", "oom", "host_oom", "pids_limit")
    if by_fence and by_fence.cause in outside:
        return by_fence
    wrong = outcome.device or _by_verified_work(outcome, ranks)
    return wrong or _by_orchestrator(outcome) or _by_worker(outcome) or by_fence or _by_numbers(outcome, ranks)


def _by_fence(seen: GroupEvidence, limit_bytes: int, outcome: LaunchOutcome) -> Failure | None:
    if seen.mismatch:
        return Failure(cause="isolation_lost", detail=seen.mismatch)
    if outcome.exit_status == EXIT_REFUSED and seen.proc is None:
        return Failure(cause="isolation_lost", detail="it could not enter its isolation. See its log")
    if seen.before is None or seen.after is None or seen.usage is None:
        return None
    lost = fence_evidence.changes(seen.effective, seen.effective_end) if seen.effective and seen.effective_end else ()
    verdict = fence_evidence.verdict(
        seen.before,
        seen.after,
        seen.usage,
        limit_bytes,
        outcome.exit_status,
        timed_out=outcome.timed_out is not None,
        lost=lost,
    )
    return Failure(cause=verdict.cause, detail=verdict.detail) if verdict else None


def _by_verified_work(outcome: LaunchOutcome, ranks: Sequence[RankLog]) -> Failure | None:
    """A result that was not the one that it must be, on the first device that had one, however the launch ended."""
    for number, rank in enumerate(ranks):
        seen = rank.checked
        if seen is not None and seen.wrong:
            told = _mismatches(seen, rank, outcome.start_s)
            return Failure(cause="mismatch", detail=f"{outcome.device_names[number]}: {told}")
    return None


def _mismatches(seen: Checked, rank: RankLog, start_s: float | None) -> str:
    """``"2 of 1,204 results are wrong, the first (product, check 12) 34.2 s after the start"``."""
    told = f"{seen.wrong:,} of {seen.checks:,} results {'is' if seen.wrong == 1 else 'are'} wrong"
    if not rank.mismatches:
        return told
    first = rank.mismatches[0]
    when = "" if start_s is None else f" {first.time_s - start_s:.1f} s after the start"
    return f"{told}, the first ({first.what}, check {first.check}){when}"


def _by_orchestrator(outcome: LaunchOutcome) -> Failure | None:
    if outcome.harness_error:
        return Failure(
            cause="harness_error", detail=outcome.harness_error.splitlines()[-1], traceback=outcome.harness_error
        )
    if outcome.timed_out is not None:
        return Failure(cause="timeout", detail=outcome.timed_out)
    if outcome.broken_protocol:
        return Failure(cause="exit", detail=outcome.broken_protocol)
    if outcome.interrupted and not (outcome.full and outcome.window):
        return Failure(cause="interrupted", detail="the run was interrupted before the averaging window was full")
    return None


def _by_worker(outcome: LaunchOutcome) -> Failure | None:
    """What the worker reported before it ended: of several ranks, the killed one, else the first."""
    killed = [failed for failed in outcome.failures if failed.kind == "signal"]
    for failed in (*killed, *outcome.failures):
        device = f"{outcome.device_names[failed.rank]}: " if failed.kind == "mismatch" else ""
        return Failure(cause=failed.kind, detail=f"{device}{failed.message}", traceback=failed.traceback or None)
    return None


def _by_numbers(outcome: LaunchOutcome, ranks: Sequence[RankLog]) -> Failure | None:
    for rank in ranks:
        step = _not_finite(rank)
        if step is not None:
            return Failure(cause="nan", detail=f"the loss of step {step} was not finite")
    if outcome.window is None:
        steps = min(sum(row.steps for row in rank.slices) for rank in ranks)
        return Failure(
            cause="short",
            detail=f"only {steps} steps were measured. A full window after warm-up, with {MIN_STEPS} steps and "
            "no stall at its boundaries, needs more",
        )
    return None


def _not_finite(rank: RankLog) -> str | None:
    """The step whose loss makes the launch fail. A mode that skips steps may recover; others do not."""
    bad = [step for step, loss in rank.losses.items() if loss is None]
    if rank.ready and rank.ready.skips and bad and next(reversed(rank.losses.values())) is not None:
        return None
    return bad[0] if bad else None
