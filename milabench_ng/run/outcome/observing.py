"""Evaluates a batch: what was observed of each tenant, and why it failed if it did."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from milabench_ng.fence.io import achieved, excess
from milabench_ng.fence.sharing.shares import disjoint
from milabench_ng.model.plan import Launch
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.faults import device_fault
from milabench_ng.node.foreign_load import foreign_share
from milabench_ng.records.batch_search import BatchSearch
from milabench_ng.records.endurance import Endurance, part, parts_of
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.record import ConcurrentLaunch, Data, Failure, Neighbour, Neighbours, SamplingSpan
from milabench_ng.records.series import BatchSeries
from milabench_ng.records.surroundings import Surroundings
from milabench_ng.records.window import Window, settled_window
from milabench_ng.run.execution.batch import BatchRunner
from milabench_ng.run.execution.group_evidence import GroupEvidence
from milabench_ng.run.execution.interruption import SAME_S, Interruption
from milabench_ng.run.execution.sampling import INTERVAL_S
from milabench_ng.run.execution.tenant import Tenant
from milabench_ng.run.outcome.failure_cause import LaunchOutcome, judge
from milabench_ng.run.outcome.observation import Observation
from milabench_ng.run.outcome.run_context import RunContext
from milabench_ng.run.outcome.votes import Ballot, outvoted
from milabench_ng.run.persistence.run_progress import BatchWork
from milabench_ng.telemetry.messages import HOST_KEY, SourceName
from milabench_ng.telemetry.recorder import Recorder


class BatchObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The raw data of a batch that has run."""

    work: BatchWork
    runner: BatchRunner
    started: datetime
    """When it was requested (UTC), at ``requested_s``."""
    requested_s: float
    conditions: tuple[Conditions, Conditions]
    surroundings: tuple[Surroundings, Surroundings]
    host_pace: tuple[Mapping[str, HostPace], Mapping[str, HostPace]]
    """Pace by slot, at both edges."""
    data: Mapping[str, Data]
    """Data by test (`suite.test`); tests that read none are absent."""
    xids: Mapping[str, Sequence[int]]
    """GPU errors, by UUID."""
    busy: Sequence[str]
    """Groups that could not be removed."""
    strays: tuple[str, ...]
    """Processes of the batch that outlived its groups."""
    searches: Mapping[str, BatchSearch]
    """How automatic batch sizes were found, by test; others are absent."""


def observe(observed: BatchObservation, context: RunContext) -> list[Observation]:
    """The observations of each tenant of the batch that leaves a record."""
    tenants = observed.runner.tenants
    for tenant in tenants:
        _note_readers(tenant, observed.runner)
    failures = {tenant.launch.job_id: _failure(tenant, observed, context) for tenant in tenants}
    for job_id, why in outvoted(_ballots(tenants, context)).items():
        failures[job_id] = failures[job_id] or Failure(cause="mismatch", detail=why)
    return [_seen(tenant, observed, failures, context) for tenant in tenants if tenant.launch in observed.work.wanted]


def _ballots(tenants: Iterable[Tenant], context: RunContext) -> list[Ballot]:
    """The results of all processes that verify their work."""
    found = []
    for tenant in tenants:
        launch = tenant.launch
        for number, rank in enumerate(tenant.ranks):
            if rank.checked is not None:
                name = context.facts.planned.devices[launch.slot_ids[number]].name
                threads = rank.entered.torch_threads if rank.entered else 0
                work = tuple(sorted((option, str(value)) for option, value in launch.arguments.items()))
                found.append(
                    Ballot(
                        job_id=launch.job_id,
                        device=_device_in_words(launch.slot_ids[number], context),
                        alike=(launch.workload, work, number, name, threads),
                        digests=rank.digests,
                    )
                )
    return found


def _device_in_words(slot: str, context: RunContext) -> str:
    """``"GPU 3 (NVIDIA H200, GPU-1234)"``, ``"CPU partition 0"``."""
    device = context.facts.planned.devices[slot]
    if device.uuid is None:
        return f"CPU partition {slot}"
    return f"GPU {slot} ({device.name}, {device.uuid})"


def _note_readers(tenant: Tenant, runner: BatchRunner) -> None:
    """Note what the dataset's readers used of the I/O share, if it is they that enforce it."""
    evidence = runner.evidence[tenant.launch.job_id]
    for slot, rank in zip(tenant.launch.slot_ids, tenant.ranks, strict=True):
        io = evidence[slot].io
        if io and rank.done:
            seen = achieved(io, rank.done.read_bytes, rank.done.read_s)
            runner.note(tenant.launch.job_id, slot, io=seen)
            runner.accuse(tenant.launch.job_id, slot, excess(seen))


def _window(tenant: Tenant, observed: BatchObservation, context: RunContext) -> Window | None:
    start_s, stop_s = observed.runner.start_s, observed.runner.stop_s
    if start_s is None or stop_s is None:
        return None
    return settled_window([rank.slices for rank in tenant.ranks], stop_s, context.facts.planned.rule, start_s)


def _failure(tenant: Tenant, observed: BatchObservation, context: RunContext) -> Failure | None:
    cut_short = tenant.launch.job_id in observed.runner.cut_short
    outcome = LaunchOutcome(
        exit_status=tenant.ended.result(),
        full=tenant.full.done() and not cut_short,
        window=_window(tenant, observed, context),
        timed_out=observed.runner.timed_out.get(tenant.launch.job_id),
        interrupted=cut_short or _was_interrupted(tenant, context.interrupted),
        harness_error=observed.runner.broken or tenant.harness_error,
        device=_device(tenant, observed, context),
        broken_protocol=tenant.broken_protocol,
        failures=tenant.failures,
        device_names=[_device_in_words(slot, context) for slot in tenant.launch.slot_ids],
        start_s=observed.runner.start_s,
    )
    limits = {slot: context.facts.planned.shares[slot].memory_bytes for slot in tenant.launch.slot_ids}
    found = judge(outcome, tenant.ranks, observed.runner.evidence[tenant.launch.job_id], limits)
    if found is None and any(group.name in observed.busy for group in tenant.groups.values()):
        return Failure(cause="timeout", detail="processes of it could not be removed after the stop")
    return found


def _was_interrupted(tenant: Tenant, interrupted: Interruption) -> bool:
    """Whether a launch ended after the run was interrupted, and not by itself before.

    The signal that stops the run may go to all processes of a job and kill a worker a little earlier.
    """
    if interrupted.by is None:
        return False
    same = tenant.ended.result() == -interrupted.by
    return (tenant.failed_s or 0.0) >= interrupted.at_s - (SAME_S if same else 0.0)


def _device(tenant: Tenant, observed: BatchObservation, context: RunContext) -> Failure | None:
    """What happened to the launch's GPUs, if anything."""
    for slot in tenant.launch.slot_ids:
        board = context.facts.boards.get(slot)
        fault = device_fault(board, *observed.conditions, observed.xids) if board else None
        if fault is not None:
            return Failure(cause=fault.cause, detail=fault.detail)
    return None


def _seen(
    tenant: Tenant, observed: BatchObservation, failures: Mapping[str, Failure | None], context: RunContext
) -> Observation:
    launch = tenant.launch
    failure = failures[launch.job_id]
    ended_s = tenant.ended_s if tenant.ended_s is not None else time.monotonic()
    runner = observed.runner
    stop_s = runner.stop_s if runner.stop_s is not None else ended_s
    start_s = runner.start_s if runner.start_s is not None else stop_s
    devices = [context.facts.planned.devices[slot] for slot in launch.slot_ids]
    uuids = {str(device.index): device.uuid for device in devices}
    keys: list[tuple[SourceName, str]] = [
        ("host", HOST_KEY),
        *(("gpu", uuid) for uuid in uuids.values() if uuid),
        *(("tenant", slot) for slot in launch.slot_ids),
    ]
    window = _window(tenant, observed, context) if failure is None else None
    over = window or Window(start_s=start_s, end_s=stop_s)
    recorder = context.sampler.recorder
    evidence = runner.evidence
    cpus = [one.effective.cpus for groups in evidence.values() for one in groups.values() if one.effective]
    return Observation(
        launch=launch,
        attempt=context.progress.attempt(launch),
        batch=observed.work.batch.number,
        started=observed.started,
        requested_s=observed.requested_s,
        ready_s=tenant.ready_s,
        ended_s=ended_s,
        start_s=runner.start_s,
        stop_s=runner.stop_s,
        window=window,
        ranks=tenant.ranks,
        exit_status=tenant.ended.result(),
        failure=failure,
        groups={slot: group.name for slot, group in tenant.groups.items()},
        shares={slot: group.share for slot, group in tenant.groups.items()},
        evidence=evidence[launch.job_id],
        disjoint=disjoint(one for one in cpus if one is not None) if cpus else None,
        batch_search=observed.searches.get(launch.test),
        neighbours=_neighbours(tenant, runner.tenants, failures, stop_s),
        data=observed.data.get(launch.test),
        environment=tenant.task.environment,
        conditions=observed.conditions,
        xids=observed.xids,
        surroundings=observed.surroundings,
        strays=observed.strays,
        cache_spread=cache_spread(evidence.values()),
        host_pace={slot: (observed.host_pace[0][slot], observed.host_pace[1][slot]) for slot in launch.slot_ids},
        gpu_monitor=recorder.gpu_monitor(uuids, start_s, stop_s),
        telemetry=recorder.telemetry(keys, over.start_s, over.end_s),
        gpu_load=recorder.gpu_load(filter(None, uuids.values()), start_s, stop_s),
        sampled=SamplingSpan(
            start_s=over.start_s,
            end_s=over.end_s,
            interval_s=INTERVAL_S,
            dropped=recorder.dropped(start_s, stop_s),
        ),
        endurance=_endurance(tenant, observed, context),
        sampler_problem=context.sampler.problem,
        foreign_cpu=_foreign_cpu(runner.tenants, recorder, window) if window else None,
        paused_s=sum(pause.length_s for pause in runner.pauses),
    )


def _endurance(tenant: Tenant, observed: BatchObservation, context: RunContext) -> Endurance | None:
    """Both ends of the launch, if it was to work for long."""
    runner, planned = observed.runner, context.facts.planned
    if runner.start_s is None or runner.stop_s is None:
        return None
    ends = parts_of(runner.start_s, runner.stop_s, planned.rule)
    uuids = [planned.devices[slot].uuid for slot in tenant.launch.slot_ids]
    keys: list[tuple[SourceName, str]] = [("gpu", uuid) for uuid in uuids if uuid]
    recorder, slices = context.sampler.recorder, [rank.slices for rank in tenant.ranks]
    made = [part(end, slices, recorder.telemetry(keys, end.start_s, end.end_s)) for end in ends or ()]
    first, last = made if made else (None, None)
    return Endurance(first=first, last=last) if first and last else None


def series_of(observed: BatchObservation, context: RunContext) -> BatchSeries:
    """What the sampler read while the batch ran: the node, its devices and its tenants."""
    planned, begun = context.facts.planned, context.facts.begun
    launches = observed.work.batch.launches
    slots = [slot for launch in launches for slot in launch.slot_ids]
    uuids = dict.fromkeys(uuid for slot in slots if (uuid := planned.devices[slot].uuid))
    keys: list[tuple[SourceName, str]] = [
        ("host", HOST_KEY),
        *(("gpu", uuid) for uuid in uuids),
        *(("tenant", slot) for slot in slots),
    ]
    return BatchSeries(
        run_id=begun.name.run_id,
        session=begun.name.session,
        batch=observed.work.batch.number,
        labels=tuple(dict.fromkeys(launch.label for launch in launches)),
        requested_s=observed.requested_s,
        start_s=observed.runner.start_s,
        stop_s=observed.runner.stop_s,
        telemetry=context.sampler.recorder.series(keys, observed.requested_s, time.monotonic()),
    )


def _foreign_cpu(tenants: Iterable[Tenant], recorder: Recorder, window: Window) -> float | None:
    """What other programs took of the CPU time in the window."""
    slots = [slot for tenant in tenants for slot in tenant.launch.slot_ids]
    used = [recorder.spreads("tenant", slot, window.start_s, window.end_s) for slot in slots]
    if not all("cpu_s" in one for one in used):
        return None
    host = recorder.spreads("host", HOST_KEY, window.start_s, window.end_s)
    return foreign_share(host, used, os.cpu_count() or 1)


def cache_spread(evidence: Iterable[Mapping[str, GroupEvidence]]) -> float:
    """How far the page caches of a batch's tenants are apart, as a part of the smallest share; 0 if that is unknown.

    The kernel charges a file to whoever reads it first. Pure.
    """
    seen = [group for groups in evidence for group in groups.values() if group.usage and group.effective]
    caches = [one.usage.page_cache_max_bytes for one in seen if one.usage]
    shares = [one.effective.memory_bytes for one in seen if one.effective]
    known = [size for size in caches if size is not None]
    limits = [size for size in shares if size]
    return (max(known) - min(known)) / min(limits) if known and limits else 0.0


def _neighbours(
    tenant: Tenant, tenants: Sequence[Tenant], failures: Mapping[str, Failure | None], stop_s: float
) -> Neighbours:
    """Which tenants worked alongside ``tenant``, and which were lost before the common stop."""
    others = [other for other in tenants if other is not tenant]
    lost = []
    for other in others:
        failure = failures[other.launch.job_id]
        early = other.ended_s is not None and other.ended_s < stop_s
        if failure is not None and early:
            seconds = stop_s - (other.ended_s or stop_s)
            who = beside(other.launch, tenant.launch)
            lost.append(Neighbour(job_id=who.job_id, label=who.label, cause=failure.cause, seconds_before_stop=seconds))
    who_all = tuple(beside(other.launch, tenant.launch) for other in others)
    alike = all(one == ConcurrentLaunch(job_id=one.job_id) for one in who_all)
    return Neighbours(
        planned=len(others),
        alive_at_stop=len(others) - len(lost),
        lost=tuple(lost),
        who=msgspec.UNSET if alike else who_all,
    )


def beside(other: Launch, launch: Launch) -> ConcurrentLaunch:
    """``other`` as the record of ``launch`` names it."""
    label = msgspec.UNSET if other.label == launch.label else other.label
    return ConcurrentLaunch(job_id=other.job_id, label=label, role=other.role)
