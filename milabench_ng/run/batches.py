"""Runs all batches of a plan and writes a record for every launch."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from milabench_ng.fence.choosing import above
from milabench_ng.fence.io import excess
from milabench_ng.fence.kernel.quotas import cpu_limits
from milabench_ng.model.errors import DataError, MnbError
from milabench_ng.model.events import Failed
from milabench_ng.model.plan import Batch, Device, Launch
from milabench_ng.model.units import counted, utc_now
from milabench_ng.records.batch_search import SEARCH_PHASE
from milabench_ng.records.borders import budget_left_s, narrow, spent
from milabench_ng.records.record import Data, Record
from milabench_ng.records.series import encode_series, series_name
from milabench_ng.records.surroundings import Surroundings
from milabench_ng.records.window import launch_perf
from milabench_ng.records.worker_variables import STORAGE_VARIABLE
from milabench_ng.run.batch_search import find_sizes, with_sizes
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.events.run_events import BatchBegins, Gauges, LaunchEnds, LaunchSlots
from milabench_ng.run.execution.announcing import Announcer
from milabench_ng.run.execution.bandwidth import probe_all
from milabench_ng.run.execution.batch import BatchRunner, gone
from milabench_ng.run.execution.caching import make_ready
from milabench_ng.run.execution.interruption import Interrupted
from milabench_ng.run.execution.logs import Log
from milabench_ng.run.execution.pacing import read_host_pace, work_at_once
from milabench_ng.run.execution.sampling import Sampler
from milabench_ng.run.execution.starting import MachineryError
from milabench_ng.run.execution.strays import end_strays, running
from milabench_ng.run.execution.tenant import Tenant
from milabench_ng.run.execution.waiting import in_thread
from milabench_ng.run.execution.worker_server import RESTARTS
from milabench_ng.run.outcome.observing import BatchObservation, observe, series_of
from milabench_ng.run.outcome.recording import make_record
from milabench_ng.run.outcome.run_context import RunContext
from milabench_ng.run.persistence.run_progress import BatchWork
from milabench_ng.run.persistence.spooling import FileContent
from milabench_ng.run.planning.duration import between_sessions_s, least_batch_s, time_left_s
from milabench_ng.run.planning.planned_run import PlannedRun
from milabench_ng.run.tenants import make_tenant
from milabench_ng.telemetry.messages import Watch


async def run(context: RunContext, bus: Bus) -> None:
    """Run pending batches in order until none is left, enough is done, or an interruption."""
    progress, interrupted = context.progress, context.interrupted
    planned = context.facts.planned
    beyond_s: list[float] = []
    unable: Counter[str] = Counter()
    while not interrupted.is_set() and (works := progress.to_do()):
        if await ends_here(context, bus):
            break
        later = progress.later(works)
        least_s = [least_batch_s(batch, planned.rule) for batch in (*(work.batch for work in works), *later)]
        sessions, gap_s = planned.request.sessions, planned.request.session_gap_s
        between_s = between_sessions_s(works[-1].batch, later, planned.plan, sessions, gap_s)
        for place, work in enumerate(works):
            if interrupted.is_set():
                break
            budget_s = budget_left_s(planned.request.stopping, progress.writer.chain.entries, utc_now())
            takes_s = time_left_s(least_s[place : place + 1], beyond_s, planned.start)
            left_s = min(budget_s, time_left_s(least_s[place:], beyond_s, planned.start) + between_s)
            bus.publish(batch_begins(work.batch, planned, takes_s, left_s))
            began_s = time.monotonic()
            try:
                made = await run_batch(work, context, bus)
            except Interrupted:
                break
            for name, record in made.items():
                bus.publish(launch_ends(name, record))
            check_harness(made.values(), unable)
            searched_s = max((record.mnb.phases_s.get(SEARCH_PHASE, 0.0) for record in made.values()), default=0.0)
            beyond_s.append(time.monotonic() - began_s - searched_s - least_s[place])  # a size is searched only once


async def ends_here(context: RunContext, bus: Bus) -> bool:
    """Whether the run is at the border of a repeat and enough is done; the ledger says so then."""
    rule, progress = context.facts.planned.request.stopping, context.progress
    repeats = progress.border
    if rule is None or repeats is None:
        return False
    event = spent(rule, repeats, progress.writer.chain.entries, utc_now())
    if rule.width is not None and repeats >= rule.least:
        known = await in_thread(lambda: context.judge(context.folder.path))
        event = narrow(rule, repeats, known) or event
    if event is None:
        return False
    progress.enough(event)
    bus.note(f"stopping after {counted(repeats, 'repeat')}: {event.detail}")
    return True


def check_harness(made: Iterable[Record], unable: Counter[str]) -> None:
    """Count launches that this session could not carry out. Raises MachineryError if one has failed too often."""
    for record in made:
        failure = record.mnb.failure
        if failure is not None and failure.cause == "harness_error":
            name = f"{record.mnb.label} J{record.job_id}"
            unable[name] += 1
            if unable[name] > RESTARTS:
                raise MachineryError(f"{name}: {failure.detail}, {unable[name]} times. Continue with mnb resume")


def batch_begins(batch: Batch, planned: PlannedRun, takes_s: float, left_s: float) -> BatchBegins:
    """The event for a batch that is about to start. Pure."""
    first = batch.launches[0]
    return BatchBegins(
        number=batch.number,
        of=len(planned.plan.batches),
        label=first.label,
        run=first.run,
        launches=tuple(
            LaunchSlots(
                label=one.label,
                job_id=one.job_id,
                slots=one.slot_ids,
                role=one.known_role,
                unit=planned.workload(one).unit,
                devices=tuple(device_name(planned.devices[slot]) for slot in one.slot_ids),
            )
            for one in batch.launches
        ),
        takes_s=takes_s,
        left_s=left_s,
    )


def device_name(device: Device) -> str:
    """``"GPU 0"``, ``"MIG 1"``, ``"CPU 0"``."""
    return f"{device.kind.upper()} {device.index}"


def launch_ends(name: str, record: Record) -> LaunchEnds:
    """The event for a launch whose record is called ``name``. Pure."""
    ours = record.mnb
    perf = None
    if ours.failure is None:
        assert ours.window is not None
        perf = launch_perf([rank.slices for rank in ours.ranks], ours.window)
    return LaunchEnds(
        batch=ours.batch,
        job_id=record.job_id,
        label=ours.label,
        role=ours.launch.known_role,
        attempt=ours.attempt,
        file=name,
        unit=ours.unit,
        perf=perf,
        cause=ours.failure.cause if ours.failure else None,
        detail=ours.failure.detail if ours.failure else "",
        marks=len(ours.marks),
    )


async def run_batch(work: BatchWork, context: RunContext, bus: Bus) -> dict[str, Record]:
    """Run one batch and write its records; return them by file name. Raises `Interrupted` before it has begun."""
    await _mend(context, bus)
    known = running()
    found = await find_sizes(work, context, bus)
    work = with_sizes(work, found)
    batch = work.batch
    data, unread = await context.interrupted.unless(in_thread(lambda: _page_cache(batch, context)))
    unfit = unread | {test: one.unfit for test, one in found.items() if one.unfit}
    shares = {slot: context.facts.planned.shares[slot].cpus for one in batch.launches for slot in one.slot_ids}
    pace_before = await context.interrupted.unless(read_host_pace(shares, work_at_once))
    before = context.sampler.with_energy(await context.interrupted.unless(context.node.conditions(context.own_pids)))
    around = _surroundings(shares, context)
    await context.node.xids()
    context.progress.begin(work)
    requested_s, started = time.monotonic(), utc_now()
    idle = running()
    tenants = [_tenant(launch, work, context, requested_s, unfit.get(launch.test)) for launch in batch.launches]
    known |= running() - idle  # what holds a fence, such as srun
    _watch(tenants, context.sampler)
    announcer = Announcer(batch.number, tenants, bus.publish, lambda: read_gauges(batch, context))
    limits = context.facts.planned.limits
    runner = BatchRunner(tenants, context.starter, limits, context.interrupted, announcer)
    try:
        with contextlib.suppress(Interrupted):  # the runner sees it too, and the launches get their records
            await context.interrupted.unless(_probe_io(runner, context))
        await runner.run()
        after = context.sampler.with_energy(await context.node.conditions(context.own_pids))
        around_after = _surroundings(shares, context)
    finally:
        busy = await gone(tenants)
        known |= {tenant.worker.process for tenant in tenants if tenant.worker}
        foreign = (*context.foreign, *context.sampler.families)
        strays = end_strays(known, (*context.below, *context.starter.families), foreign)
        logs = _close_logs(tenants, context)
    pace_after = await read_host_pace(shares, work_at_once)
    observed = BatchObservation(
        work=work,
        runner=runner,
        started=started,
        requested_s=requested_s,
        conditions=(before, after),
        surroundings=(around, around_after),
        host_pace=(pace_before, pace_after),
        data=data,
        xids=await context.node.xids(),
        busy=busy,
        strays=strays,
        searches={test: one.search for test, one in found.items()},
    )
    records = [make_record(context.facts, seen) for seen in observe(observed, context)]
    names = [context.folder.record(one.name, one.job_id, started, one.success).name for one in records]
    named = dict(zip(names, records, strict=True))
    series = series_of(observed, context)
    content = await in_thread(lambda: encode_series(series))
    context.progress.end(batch.number, named, (series_name(batch.number, started), content), logs)
    if runner.broken:
        raise MnbError(
            f"launch group {batch.number} was not watched to its end. Its records are written:\n{runner.broken}"
        )
    return named


async def _mend(context: RunContext, bus: Bus) -> None:
    """Replace what starts the workers, if it was lost."""
    lost = await context.interrupted.unless(context.starter.ready())
    if lost:
        bus.note(f"{lost}: restarted")


def _page_cache(batch: Batch, context: RunContext) -> tuple[dict[str, Data], dict[str, Failed]]:
    """Set the page cache for a batch; what it holds then, by test, and why tests cannot read or write their files."""
    files = {launch.test: context.files(launch) for launch in batch.launches}
    data: dict[str, Data] = {}
    unread: dict[str, Failed] = {}
    for test, found in files.items():
        if found is not None:
            try:
                data[test] = make_ready(found, context.facts.planned.request.cache)
            except DataError as error:
                unread[test] = Failed(kind="data_error", message=str(error)[:500], traceback="")
    place = context.environment.get(STORAGE_VARIABLE)
    if place is not None and not os.path.isdir(place):
        gone = Failed(kind="data_error", message=f"the folder for its files, {place}, is gone", traceback="")
        unread |= {one.test: gone for one in batch.launches if context.facts.planned.workload(one).stores}
    return data, unread


def read_gauges(batch: Batch, context: RunContext) -> dict[str, Gauges]:
    """The last samples of the GPUs of a batch, by slot."""
    slots = {slot: context.facts.planned.devices[slot].uuid for one in batch.launches for slot in one.slot_ids}
    recorder = context.sampler.recorder
    return {slot: msgspec.convert(recorder.latest("gpu", uuid), Gauges) for slot, uuid in slots.items() if uuid}


def _watch(tenants: Sequence[Tenant], sampler: Sampler) -> None:
    """Have the sampler read these groups, instead of the previous batch's of the same names."""
    for tenant in tenants:
        for slot, group in tenant.groups.items():
            sampler.tell(Watch(key=slot, **msgspec.structs.asdict(group.files)))


def _close_logs(tenants: Sequence[Tenant], context: RunContext) -> list[FileContent]:
    """Close the logs; return those kept in memory, to be written with the records."""
    contents = [(tenant.log, tenant.log.close()) for tenant in tenants]
    return [(str(log.path.relative_to(context.folder.path)), content) for log, content in contents if log.in_memory]


def _surroundings(shares: Mapping[str, tuple[int, ...]], context: RunContext) -> Surroundings:
    """What surrounds a batch now, whose tenants have these CPUs by slot."""
    planned = context.facts.planned
    group = above(planned.capabilities, planned.isolation)
    return Surroundings(
        time_s=time.monotonic(),
        cpus=sum(map(len, shares.values())),
        cpu_limits=cpu_limits(Path(group)) if group else (),
        contested=context.claim.contested(),
        machinery_cpu_s=context.machinery.cpu_s((*context.own_pids, *context.starter.pids)),
    )


async def _probe_io(runner: BatchRunner, context: RunContext) -> None:
    """Check in all groups of the batch at once that the I/O share holds, before anything works."""
    shares = context.facts.planned.io
    limited = [tenant for tenant in runner.tenants if tenant.launch.test in shares]
    groups = {(one.launch.job_id, slot): group for one in limited for slot, group in one.groups.items()}
    asked = {(one.launch.job_id, slot): shares[one.launch.test] for one in limited for slot in one.groups}
    found = await probe_all(groups, asked, context.facts.planned.request.dataroot)
    for (job_id, slot), seen in found.items():
        runner.note(job_id, slot, io=seen)
        runner.accuse(job_id, slot, excess(seen))


def _tenant(launch: Launch, work: BatchWork, context: RunContext, requested_s: float, unfit: Failed | None) -> Tenant:
    """Make a launch's fence; its worker is not started yet. ``unfit``: why it is not to work."""
    attempt = context.progress.attempt(launch) if launch in work.wanted else 0
    # The same company may be in many batches.
    name = launch.label if launch.measured else f"{launch.label}.b{work.batch.number}"
    log = Log(context.folder.log(name, launch.job_id, attempt))
    return make_tenant(launch, work.batch, context, requested_s, log, unfit=unfit)
