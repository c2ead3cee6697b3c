"""Finds automatic batch sizes before a batch: trial launches, in the fences and shares of the real ones."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from milabench_ng.model.batch_sizes import BATCH_SIZE, STEPS, largest_fitting, next_size, sizes_for
from milabench_ng.model.catalogue import Option
from milabench_ng.model.events import Cause, Failed
from milabench_ng.model.plan import Batch, Launch
from milabench_ng.model.profile import name_of
from milabench_ng.model.units import format_bytes
from milabench_ng.records.batch_search import BatchSearch, SizeTrial
from milabench_ng.records.record import Failure
from milabench_ng.records.window import Window
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.execution.announcing import Announcer
from milabench_ng.run.execution.batch import BatchRunner, gone
from milabench_ng.run.execution.logs import Log
from milabench_ng.run.execution.tenant import Tenant
from milabench_ng.run.outcome.failure_cause import LaunchOutcome, judge
from milabench_ng.run.outcome.run_context import RunContext
from milabench_ng.run.persistence.resuming import MEMORY_TOLERANCE
from milabench_ng.run.persistence.run_progress import BatchWork
from milabench_ng.run.tenants import make_tenant

TOO_LARGE: frozenset[Cause] = frozenset({"device_oom", "oom", "exception", "data_error", "short", "timeout"})
"""Causes that a smaller batch may not have; any other ends the search.

Besides memory, a batch may be too large for the dataset, for shared memory, for the index type of a kernel
(``exception``), or for its steps to end within ``max_seconds`` (``short``) or the limits of a launch (``timeout``).
"""


class FoundSize(msgspec.Struct, frozen=True):
    """What a search found for a test; ``failure`` if it found no size."""

    search: BatchSearch
    failure: Failure | None = None

    @property
    def unfit(self) -> Failed | None:
        """What the launches report if there is no size."""
        if self.failure is None:
            return None
        return Failed(kind=self.failure.cause, message=self.failure.detail[:500], traceback="")


class _SearchTask(msgspec.Struct, frozen=True):
    """A test whose batch size is to be found, and the memory that its trials may take, by slot."""

    test: str
    launches: tuple[Launch, ...]
    option: Option
    fraction: float
    limit_bytes: dict[str, int]


async def find_sizes(work: BatchWork, context: RunContext, bus: Bus) -> dict[str, FoundSize]:
    """The batch size of each test in the batch that leaves it to be found. Raises `Interrupted`.

    A size found earlier is used again as long as the limits are the same: a resumed run may have got other memory.
    """
    found: dict[str, FoundSize] = {}
    for test in dict.fromkeys(launch.test for launch in work.batch.launches if launch.auto_batch):
        task = _search_task(test, work.batch, context)
        known = context.progress.searched(test)
        if known is not None and _alike(known.limit_bytes, task.limit_bytes):
            found[test] = FoundSize(msgspec.structs.replace(known, reused=True))
            continue
        bus.stage(f"{test}: looking for the largest batch size that fits")
        found[test] = await _search(task, work.batch, context, bus)
        if context.interrupted.is_set():
            raise context.interrupted.error()
        search = found[test].search
        sizes = ", ".join(f"{trial.size} {'fits' if trial.fits else 'does not'}" for trial in search.trials)
        bus.note(f"{test}: batch size {search.size or 'not found'} after {search.seconds:.0f} s: {sizes}")
    return found


def _alike(then: Mapping[str, int], now: Mapping[str, int]) -> bool:
    return then.keys() == now.keys() and all(
        math.isclose(then[slot], now[slot], rel_tol=MEMORY_TOLERANCE) for slot in then
    )


def with_sizes(work: BatchWork, found: Mapping[str, FoundSize]) -> BatchWork:
    """The same work with the sizes that were found; a test without one keeps ``auto``. Pure."""

    def sized(launch: Launch) -> Launch:
        size = found[launch.test].search.size if launch.auto_batch else None
        return launch if size is None else launch.sized(size)

    batch = msgspec.structs.replace(work.batch, launches=tuple(map(sized, work.batch.launches)))
    return BatchWork(batch=batch, wanted=tuple(map(sized, work.wanted)))


def _search_task(test: str, batch: Batch, context: RunContext) -> _SearchTask:
    launches = tuple(launch for launch in batch.launches if launch.test == test)
    fraction = context.facts.planned.resolved.tests[name_of(test)].memory_fraction
    return _SearchTask(
        test=test,
        launches=launches,
        option=next(one for one in context.facts.planned.workload(launches[0]).options if one.name == BATCH_SIZE),
        fraction=fraction,
        limit_bytes={slot: int(fraction * context.memory(one, slot)) for one in launches for slot in one.slot_ids},
    )


async def _search(task: _SearchTask, batch: Batch, context: RunContext, bus: Bus) -> FoundSize:
    """Try sizes in all launches of a test at the same time: one size for all, which the smallest of them can have."""
    began_s = time.monotonic()
    trials: list[SizeTrial] = []
    failure: Failure | None = None
    tried: dict[int, bool] = {}
    while failure is None and (size := next_size(tried, sizes_for(task.option))) is not None:
        bus.stage(f"{task.test}: trying batch size {size}")
        trial, failures = await _try_size([one.sized(size) for one in task.launches], batch, context, task.limit_bytes)
        if context.interrupted.is_set():
            break
        trials.append(trial)
        tried[size] = trial.fits
        failure = _fatal(trial, failures, any(tried.values()))
    return FoundSize(
        search=BatchSearch(
            size=None if failure else largest_fitting(tried),
            fraction=task.fraction,
            limit_bytes=task.limit_bytes,
            steps=STEPS,
            batch=batch.number,
            seconds=time.monotonic() - began_s,
            trials=tuple(trials),
        ),
        failure=failure,
    )


def _fatal(trial: SizeTrial, failures: Mapping[str, Failure], some_fit: bool) -> Failure | None:
    """The failure that ends a search: of another cause than size, or of the smallest size. Pure."""
    for slot, failure in failures.items():
        if not some_fit or failure.cause not in TOO_LARGE:
            detail = f"batch size {trial.size}, tried on {slot}: {failure.detail}"
            return Failure(cause=failure.cause, detail=detail)
    return None


async def _try_size(
    launches: Sequence[Launch], batch: Batch, context: RunContext, limits: Mapping[str, int]
) -> tuple[SizeTrial, dict[str, Failure]]:
    """A few steps of ``launches``, side by side, and why they failed, by slot."""
    began_s = time.monotonic()
    trial = f"-t{launches[0].arguments[BATCH_SIZE]}"
    tenants = [
        make_tenant(one, batch, context, began_s, _log(one, context), trial=trial, trial_steps=STEPS)
        for one in launches
    ]
    silent = Announcer(batch.number, tenants, lambda _: None)  # the state of a trial is not that of a launch
    runner = BatchRunner(tenants, context.starter, context.facts.planned.limits, context.interrupted, silent)
    try:
        await runner.run()
    finally:
        busy = await gone(tenants)
        for tenant in tenants:
            tenant.log.close()
    peaks = {slot: peak for tenant in tenants for slot, peak in _peaks(tenant, runner, context).items()}
    failures: dict[str, Failure] = {}
    for tenant in tenants:
        failure = _failure(tenant, runner, context, busy) or _over(tenant.launch, peaks, limits, context)
        if failure is not None:
            failures |= dict.fromkeys(tenant.launch.slot_ids, failure)
    size = cast(int, launches[0].arguments[BATCH_SIZE])
    unfit = {slot: f"{failure.cause}: {failure.detail}" for slot, failure in failures.items()}
    return SizeTrial(size=size, seconds=time.monotonic() - began_s, peak_bytes=peaks, unfit=unfit), failures


def _log(launch: Launch, context: RunContext) -> Log:
    return Log(context.folder.log(f"{launch.label}.batch-size-{launch.arguments[BATCH_SIZE]}", launch.job_id))


def _peaks(tenant: Tenant, runner: BatchRunner, context: RunContext) -> dict[str, int | None]:
    """The most memory in use, by slot; None where a rank did not get to tell."""
    found: dict[str, int | None] = {}
    for slot, rank in zip(tenant.launch.slot_ids, tenant.ranks, strict=True):
        usage = runner.evidence[tenant.launch.job_id][slot].usage
        sampled = (usage.anon_shmem_max_bytes if usage else None) or 0
        on_cpu = context.on_cpu(tenant.launch, slot)
        found[slot] = max(rank.peak_bytes, sampled) if on_cpu and rank.peak_bytes is not None else rank.peak_bytes
    return found


def _failure(tenant: Tenant, runner: BatchRunner, context: RunContext, busy: Sequence[str]) -> Failure | None:
    """Why a trial failed, found as for a launch; losses do not matter."""
    full = tenant.full.done()
    outcome = LaunchOutcome(
        exit_status=tenant.ended.result(),
        full=full,
        window=Window(start_s=runner.start_s or 0.0, end_s=runner.stop_s or 0.0) if full else None,
        timed_out=runner.timed_out.get(tenant.launch.job_id),
        interrupted=False,
        device=None,
        harness_error=runner.broken or tenant.harness_error,
        broken_protocol=tenant.broken_protocol,
        failures=tenant.failures,
    )
    limits = {slot: context.facts.planned.shares[slot].memory_bytes for slot in tenant.launch.slot_ids}
    found = judge(outcome, tenant.ranks, runner.evidence[tenant.launch.job_id], limits)
    if any(group.name in busy for group in tenant.groups.values()):
        return Failure(cause="exit", detail="processes of it could not be removed")
    if found is not None and found.cause == "short":
        return Failure(cause="short", detail=f"its {STEPS} steps took longer than max_seconds")
    return None if found is not None and found.cause == "nan" else found


def _over(
    launch: Launch, peaks: Mapping[str, int | None], limits: Mapping[str, int], context: RunContext
) -> Failure | None:
    """The failure of a launch that took more than its part of the memory, or did not tell. Pure but for the context."""
    for slot in launch.slot_ids:
        peak = peaks[slot]
        if peak is None:
            return Failure(cause="exit", detail="the trial ended without reporting how much memory it used")
        if peak > limits[slot]:
            cause: Cause = "oom" if context.on_cpu(launch, slot) else "device_oom"
            return Failure(cause=cause, detail=f"{format_bytes(peak)} in use, {format_bytes(limits[slot])} allowed")
    return None
