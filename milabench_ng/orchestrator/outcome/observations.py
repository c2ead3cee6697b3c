"""What came of a batch: for each tenant, what was seen of it and why it failed if it did."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from milabench_ng.fence.io import achieved, excess
from milabench_ng.fence.sharing.shares import disjoint
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.faults import device_fault
from milabench_ng.orchestrator.execution.batch import BatchRunner, Timeline
from milabench_ng.orchestrator.execution.interruption import SAME_S, Interruption
from milabench_ng.orchestrator.execution.sampling import INTERVAL_S
from milabench_ng.orchestrator.execution.tenant import Tenant
from milabench_ng.orchestrator.outcome.failure_cause import Outcome, judge
from milabench_ng.orchestrator.outcome.run_context import Equipment
from milabench_ng.orchestrator.outcome.seen import Seen
from milabench_ng.orchestrator.persistence.run_progress import Work
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.record import Data, Failure, Neighbour, Neighbours, Sampled
from milabench_ng.records.window import Window, settled_window
from milabench_ng.telemetry.messages import HOST_KEY, SourceName


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that has run."""

    work: Work
    runner: BatchRunner
    timeline: Timeline
    started: datetime
    """When it was asked for (UTC), at ``requested_s``."""
    requested_s: float
    conditions: tuple[Conditions, Conditions]
    host_pace: tuple[Mapping[int, HostPace], Mapping[int, HostPace]]
    """By device, at both edges."""
    data: Data | None
    xids: Mapping[str, Sequence[int]]
    """Errors of the GPUs, by UUID."""
    busy: Sequence[str]
    """Groups that could not be removed."""


def see(ran: Ran, equipment: Equipment) -> list[Seen]:
    """What was seen of each tenant of the batch that leaves a record."""
    tenants = ran.runner.tenants
    for tenant in tenants:
        _note_readers(tenant, ran.runner)
    failures = {tenant.launch.job_id: _failure(tenant, ran, equipment) for tenant in tenants}
    return [_seen(tenant, ran, failures, equipment) for tenant in tenants if tenant.launch in ran.work.wanted]


def _note_readers(tenant: Tenant, runner: BatchRunner) -> None:
    """What the readers of the data set had of the I/O share, where it is they that hold it."""
    evidence = runner.evidence[tenant.launch.job_id]
    for device, rank in zip(tenant.launch.devices, tenant.ranks, strict=True):
        io = evidence[device].io
        if io and rank.done:
            seen = achieved(io, rank.done.read_bytes, rank.done.read_s)
            mismatch = evidence[device].mismatch or excess(seen)
            evidence[device] = msgspec.structs.replace(evidence[device], io=seen, mismatch=mismatch)


def _window(tenant: Tenant, ran: Ran, equipment: Equipment) -> Window | None:
    start_s, stop_s = ran.timeline.start_s, ran.timeline.stop_s
    if start_s is None or stop_s is None:
        return None
    return settled_window([rank.slices for rank in tenant.ranks], stop_s, equipment.setting.rule, start_s)


def _failure(tenant: Tenant, ran: Ran, equipment: Equipment) -> Failure | None:
    outcome = Outcome(
        exit_status=tenant.ended.result(),
        full=tenant.full.done(),
        window=_window(tenant, ran, equipment),
        timed_out=ran.runner.timed_out.get(tenant.launch.job_id),
        interrupted=_was_interrupted(tenant, equipment.interrupted),
        device=_device(tenant, ran, equipment),
        broken_protocol=tenant.broken_protocol,
        failures=tenant.failures,
    )
    limits = {device: equipment.setting.shares[device].memory_bytes for device in tenant.launch.devices}
    found = judge(outcome, tenant.ranks, ran.runner.evidence[tenant.launch.job_id], limits)
    if found is None and any(group.name in ran.busy for group in tenant.groups.values()):
        return Failure(cause="timeout", detail="processes of it could not be removed after the stop")
    return found


def _was_interrupted(tenant: Tenant, interrupted: Interruption) -> bool:
    """Whether a launch ended because the run was told to stop, and not by itself before.

    What tells the run to stop may go to all processes of a job, so a worker may be killed by it a little earlier.
    """
    if not interrupted.is_set() or tenant.full.done():
        return False
    same = tenant.ended.result() == -signal.Signals[interrupted.by]
    return (tenant.failed_s or 0.0) >= interrupted.at_s - (SAME_S if same else 0.0)


def _device(tenant: Tenant, ran: Ran, equipment: Equipment) -> Failure | None:
    """What became of the launch's GPUs, if anything."""
    for device in tenant.launch.devices:
        board = equipment.setting.boards.get(device)
        fault = device_fault(board, *ran.conditions, ran.xids) if board else None
        if fault is not None:
            return Failure(cause=fault.cause, detail=fault.detail)
    return None


def _seen(tenant: Tenant, ran: Ran, failures: Mapping[str, Failure | None], equipment: Equipment) -> Seen:
    launch = tenant.launch
    failure = failures[launch.job_id]
    ended_s = tenant.ended_s if tenant.ended_s is not None else time.monotonic()
    stop_s = ran.timeline.stop_s if ran.timeline.stop_s is not None else ended_s
    start_s = ran.timeline.start_s if ran.timeline.start_s is not None else stop_s
    uuids = {str(device): equipment.setting.devices[device].uuid for device in launch.devices}
    keys: list[tuple[SourceName, str]] = [
        ("host", HOST_KEY),
        *(("gpu", uuid) for uuid in uuids.values() if uuid),
        *(("tenant", str(device)) for device in launch.devices),
    ]
    window = _window(tenant, ran, equipment) if failure is None else None
    over = window or Window(start_s=start_s, end_s=stop_s)
    recorder = equipment.sampler.recorder
    evidence = ran.runner.evidence
    cpus = [one.effective.cpus for groups in evidence.values() for one in groups.values() if one.effective]
    return Seen(
        launch=launch,
        attempt=equipment.books.attempt(launch),
        batch=ran.work.batch.number,
        started=ran.started,
        requested_s=ran.requested_s,
        ready_s=tenant.ready_s,
        ended_s=ended_s,
        timeline=ran.timeline,
        window=window,
        ranks=tenant.ranks,
        exit_status=tenant.ended.result(),
        failure=failure,
        groups={device: group.name for device, group in tenant.groups.items()},
        shares={device: group.share for device, group in tenant.groups.items()},
        evidence=evidence[launch.job_id],
        disjoint=disjoint(one for one in cpus if one is not None) if cpus else None,
        neighbours=_neighbours(tenant, ran.runner.tenants, failures, stop_s),
        data=ran.data,
        environment=tenant.task.environment,
        conditions=ran.conditions,
        host_pace={device: (ran.host_pace[0][device], ran.host_pace[1][device]) for device in launch.devices},
        gpu_monitor=recorder.gpu_monitor(uuids, start_s, stop_s),
        telemetry=recorder.telemetry(keys, over.start_s, over.end_s),
        sampled=Sampled(
            start_s=over.start_s,
            end_s=over.end_s,
            interval_s=INTERVAL_S,
            dropped=recorder.dropped(start_s, stop_s),
        ),
    )


def _neighbours(
    tenant: Tenant, tenants: Sequence[Tenant], failures: Mapping[str, Failure | None], stop_s: float
) -> Neighbours:
    """Who worked beside ``tenant``, and who was lost before the common stop."""
    lost = []
    for other in tenants:
        failure = failures[other.launch.job_id]
        early = other.ended_s is not None and other.ended_s < stop_s
        if other is not tenant and failure is not None and early:
            seconds = stop_s - (other.ended_s or stop_s)
            lost.append(Neighbour(job_id=other.launch.job_id, cause=failure.cause, seconds_before_stop=seconds))
    planned = len(tenants) - 1
    return Neighbours(planned=planned, alive_at_stop=planned - len(lost), lost=tuple(lost))
