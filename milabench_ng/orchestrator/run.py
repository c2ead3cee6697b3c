"""Runs all batches of a plan and writes a record for every launch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from milabench_ng.fence.interface import Fence, Group
from milabench_ng.fence.shares import disjoint
from milabench_ng.node.conditions import Conditions, read_conditions
from milabench_ng.node.gpus import Gpu, Nvml
from milabench_ng.orchestrator.batch import BatchRunner, Limits, Timeline, gone
from milabench_ng.orchestrator.caching import Cache, Files, make_ready
from milabench_ng.orchestrator.environment import thread_variables
from milabench_ng.orchestrator.recording import Seen, Setting, make_record
from milabench_ng.orchestrator.starting import Starter
from milabench_ng.orchestrator.tenant import Tenant
from milabench_ng.orchestrator.verdict import Outcome, judge
from milabench_ng.plan import Batch, Launch, Plan
from milabench_ng.records.names import ResultFolder, write_atomically
from milabench_ng.records.record import Failure, Neighbour, Neighbours, Record, encode_record
from milabench_ng.records.window import averaging_window
from milabench_ng.requests import Seat, Task
from milabench_ng.telemetry.messages import HOST_KEY, SourceName
from milabench_ng.telemetry.recorder import Recorder
from milabench_ng.units import utc_now


class Observer(Protocol):
    """Who is shown how a run goes on."""

    def batch_begins(self, batch: Batch, of: int) -> None:
        """A batch is about to start."""

    def tick(self, tenants: Sequence[Tenant], start_s: float | None) -> None:
        """Some times a second; ``start_s`` when the tenants work."""

    def batch_ends(self, records: Sequence[Record]) -> None:
        """Its records are written."""


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """What a run works with."""

    setting: Setting
    environment: Mapping[str, str]
    """Of every worker, before its tenant's own part."""
    fence: Fence
    starter: Starter
    recorder: Recorder
    nvml: Nvml
    gpus: tuple[Gpu, ...]
    data: Mapping[tuple[str, float], Files]
    """Data sets that are ready, by name and scale."""
    folder: ResultFolder
    cache: Cache
    limits: Limits
    own_pids: tuple[int, ...]
    interrupted: asyncio.Event


async def run(plan: Plan, equipment: Equipment, observer: Observer) -> int:
    """Run the batches of ``plan`` in order until the end or an interruption; the number of failed launches."""
    failed = 0
    for batch in plan.batches:
        if equipment.interrupted.is_set():
            break
        observer.batch_begins(batch, len(plan.batches))
        records = await run_batch(batch, equipment, observer)
        failed += sum(not record.success for record in records)
        observer.batch_ends(records)
    return failed


async def run_batch(batch: Batch, equipment: Equipment, observer: Observer) -> list[Record]:
    """Run one batch; its records, which are written."""
    files = _files(batch.launches[0], equipment)
    data = None if files is None else make_ready(files, equipment.cache)
    before = _conditions(equipment)
    requested_s, started = time.monotonic(), utc_now()
    tenants = [_tenant(launch, batch, equipment, requested_s) for launch in batch.launches]
    runner = BatchRunner(tenants, equipment.starter, equipment.limits, equipment.interrupted, observer.tick)
    try:
        timeline = await runner.run()
        after = _conditions(equipment)
    finally:
        busy = await gone(tenants)
    failures = {tenant.launch.job_id: _failure(tenant, runner, timeline, equipment, busy) for tenant in tenants}
    records = []
    for tenant in tenants:
        seen = _seen(batch, tenant, runner, timeline, equipment, started, requested_s, (before, after), failures)
        record = make_record(equipment.setting, msgspec.structs.replace(seen, data=data))
        launch = tenant.launch
        path = equipment.folder.record(launch.test, launch.job_id, started, record.success)
        write_atomically(path, encode_record(record))
        records.append(record)
    return records


def _files(launch: Launch, equipment: Equipment) -> Files | None:
    name = equipment.setting.workloads[launch.workload].data
    return None if name is None else equipment.data[name, launch.data_scale]


def _conditions(equipment: Equipment) -> Conditions:
    return read_conditions(equipment.nvml, equipment.gpus, equipment.own_pids)


def _tenant(launch: Launch, batch: Batch, equipment: Equipment, requested_s: float) -> Tenant:
    """A launch with its fence made and its worker not yet started."""
    setting = equipment.setting
    groups: dict[int, Group] = {
        device: equipment.fence.create(f"b{batch.number}-d{device}", setting.shares[device])
        for device in launch.devices
    }
    seats = tuple(
        Seat(
            device=setting.devices[device],
            entry=msgspec.to_builtins(groups[device].entry),
            threads=setting.shares[device].cores,
        )
        for device in launch.devices
    )
    share = setting.shares[launch.devices[0]]
    own = {
        **equipment.environment,
        **thread_variables(share.cores),
        "MNB_CPUS": str(len(share.cpus)),
        "MNB_RAM_BYTES": str(share.memory_bytes),
    }
    files = _files(launch, equipment)
    uuids = [setting.devices[device].uuid for device in launch.devices]
    own["CUDA_VISIBLE_DEVICES"] = ",".join(uuid for uuid in uuids if uuid)
    task = Task(
        workload=launch.workload,
        arguments=launch.arguments,
        seats=seats,
        rule=setting.rule,
        data=files.place if files else None,
        environment=own,
        requested_s=requested_s,
    )
    return Tenant(launch, task, groups, equipment.folder.log(launch.label, launch.job_id))


def _failure(
    tenant: Tenant, runner: BatchRunner, timeline: Timeline, equipment: Equipment, busy: Sequence[str]
) -> Failure | None:
    rows = [rank.slices for rank in tenant.ranks]
    stop_s = timeline.stop_s if timeline.stop_s is not None else 0.0
    outcome = Outcome(
        exit_status=tenant.ended.result(),
        full=tenant.full.done(),
        window=averaging_window(rows, stop_s, equipment.setting.rule),
        timed_out=runner.timed_out.get(tenant.launch.job_id),
        interrupted=equipment.interrupted.is_set(),
        broken_protocol=tenant.broken_protocol,
        failures=tenant.failures,
    )
    limits = {device: equipment.setting.shares[device].memory_bytes for device in tenant.launch.devices}
    found = judge(outcome, tenant.ranks, runner.evidence[tenant.launch.job_id], limits)
    if found is None and any(group.name in busy for group in tenant.groups.values()):
        return Failure(cause="timeout", detail="processes of it could not be removed after the stop")
    return found


def _seen(
    batch: Batch,
    tenant: Tenant,
    runner: BatchRunner,
    timeline: Timeline,
    equipment: Equipment,
    started: datetime,
    requested_s: float,
    conditions: tuple[Conditions, Conditions],
    failures: Mapping[str, Failure | None],
) -> Seen:
    launch = tenant.launch
    failure = failures[launch.job_id]
    ended_s = tenant.ended_s or time.monotonic()
    stop_s = timeline.stop_s or ended_s
    window = averaging_window([rank.slices for rank in tenant.ranks], stop_s, equipment.setting.rule)
    start_s = timeline.start_s or stop_s
    uuids = {str(device): equipment.setting.devices[device].uuid for device in launch.devices}
    keys: list[tuple[SourceName, str]] = [("host", HOST_KEY), *(("gpu", uuid) for uuid in uuids.values() if uuid)]
    cpus = [seen.effective.cpus for others in runner.evidence.values() for seen in others.values() if seen.effective]
    return Seen(
        launch=launch,
        batch=batch.number,
        started=started,
        requested_s=requested_s,
        ready_s=tenant.ready_s,
        ended_s=ended_s,
        timeline=timeline,
        window=window if failure is None else None,
        ranks=tenant.ranks,
        exit_status=tenant.ended.result(),
        failure=failure,
        evidence=runner.evidence[launch.job_id],
        disjoint=disjoint(one for one in cpus if one is not None) if cpus else None,
        neighbours=_neighbours(tenant, runner.tenants, failures, stop_s),
        data=None,
        environment=tenant.task.environment,
        conditions=conditions,
        gpu_monitor=equipment.recorder.gpu_monitor(uuids, start_s, stop_s),
        telemetry=equipment.recorder.telemetry(keys, start_s, stop_s),
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
