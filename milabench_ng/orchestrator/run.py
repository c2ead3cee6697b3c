"""Runs all batches of a plan and writes a record for every launch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.io import excess, reader_budget
from milabench_ng.fence.sharing.shares import environment
from milabench_ng.node.conditions import Conditions, read_conditions
from milabench_ng.orchestrator.display.reporter import Observer
from milabench_ng.orchestrator.execution.bandwidth import probe_all
from milabench_ng.orchestrator.execution.batch import BatchRunner, gone
from milabench_ng.orchestrator.execution.caching import make_ready
from milabench_ng.orchestrator.execution.logs import Log
from milabench_ng.orchestrator.execution.pacing import read_host_pace, work_at_once
from milabench_ng.orchestrator.execution.sampling import Sampler
from milabench_ng.orchestrator.execution.tenant import Tenant
from milabench_ng.orchestrator.outcome.observations import Ran, see
from milabench_ng.orchestrator.outcome.recording import make_record
from milabench_ng.orchestrator.outcome.run_context import Equipment
from milabench_ng.orchestrator.persistence.result_writer import Kept
from milabench_ng.orchestrator.persistence.run_progress import Work
from milabench_ng.plan import Launch
from milabench_ng.records.record import Record
from milabench_ng.requests import Seat, Task
from milabench_ng.telemetry.messages import Watch
from milabench_ng.units import utc_now


async def run(equipment: Equipment, observer: Observer) -> None:
    """Run what is to do in order until nothing is, or until an interruption."""
    books, interrupted = equipment.books, equipment.interrupted
    while not interrupted.is_set() and (works := books.to_do()):
        for work in works:
            if interrupted.is_set():
                break
            observer.batch_begins(work.batch, len(books.plan.batches))
            observer.batch_ends(await run_batch(work, equipment, observer))
    if interrupted.is_set():
        books.interrupted(interrupted.by)
    books.finish()


async def run_batch(work: Work, equipment: Equipment, observer: Observer) -> list[Record]:
    """Run one batch; its records, which are written."""
    batch = work.batch
    equipment.books.begin(work)
    files = equipment.files(batch.launches[0])
    data = None if files is None else make_ready(files, equipment.cache)
    shares = {device: equipment.setting.shares[device].cpus for one in batch.launches for device in one.devices}
    pace_before = await read_host_pace(shares, work_at_once)
    before = _conditions(equipment)
    equipment.xids.drain()
    requested_s, started = time.monotonic(), utc_now()
    tenants = [_tenant(launch, work, equipment, requested_s) for launch in batch.launches]
    _watch(tenants, equipment.sampler)
    limits = equipment.limits[batch.launches[0].test]
    runner = BatchRunner(tenants, equipment.starter, limits, equipment.interrupted, observer.tick)
    try:
        await _probe_io(runner, equipment)
        timeline = await runner.run()
        after = _conditions(equipment)
    finally:
        busy = await gone(tenants)
        logs = _close_logs(tenants, equipment)
    pace_after = await read_host_pace(shares, work_at_once)
    ran = Ran(
        work=work,
        runner=runner,
        timeline=timeline,
        started=started,
        requested_s=requested_s,
        conditions=(before, after),
        host_pace=(pace_before, pace_after),
        data=data,
        xids=equipment.xids.drain(),
        busy=busy,
    )
    records = [make_record(equipment.setting, seen) for seen in see(ran, equipment)]
    names = [equipment.folder.record(one.name, one.job_id, started, one.success).name for one in records]
    equipment.books.end(dict(zip(names, records, strict=True)), logs)
    return records


def _watch(tenants: Sequence[Tenant], sampler: Sampler) -> None:
    """From now on the sampler reads these groups; those of the batch before, under the same names, no longer."""
    for tenant in tenants:
        for device, group in tenant.groups.items():
            sampler.tell(Watch(key=str(device), **msgspec.structs.asdict(group.files)))


def _close_logs(tenants: Sequence[Tenant], equipment: Equipment) -> list[Kept]:
    """No more is written to the logs; those that are kept in memory, to be written with the records."""
    contents = [(tenant.log, tenant.log.close()) for tenant in tenants]
    return [(str(log.path.relative_to(equipment.folder.path)), content) for log, content in contents if log.in_memory]


def _conditions(equipment: Equipment) -> Conditions:
    return read_conditions(equipment.nvml, equipment.gpus, equipment.own_pids)


async def _probe_io(runner: BatchRunner, equipment: Equipment) -> None:
    """Show in every group of the batch that its I/O share holds, in all at the same time, before anything works."""
    asked = equipment.setting.io.get(runner.tenants[0].launch.test)
    if asked is None:
        return
    groups = {(one.launch.job_id, device): group for one in runner.tenants for device, group in one.groups.items()}
    found = await probe_all(groups, asked, Path(equipment.setting.dataroot))
    for (job_id, device), seen in found.items():
        evidence = runner.evidence[job_id]
        evidence[device] = msgspec.structs.replace(evidence[device], io=seen, mismatch=excess(seen))


def _tenant(launch: Launch, work: Work, equipment: Equipment, requested_s: float) -> Tenant:
    """A launch with its fence made and its worker not yet started."""
    setting = equipment.setting
    groups: dict[int, Group] = {
        device: equipment.fence.create(f"b{work.batch.number}-d{device}", setting.share(launch.test, device))
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
    own = {**equipment.environment, **environment(groups[launch.devices[0]].share)}
    files = equipment.files(launch)
    uuids = [setting.devices[device].uuid for device in launch.devices]
    own["CUDA_VISIBLE_DEVICES"] = ",".join(uuid for uuid in uuids if uuid)
    task = Task(
        workload=launch.workload,
        arguments=launch.arguments,
        seats=seats,
        processes=sum(len(other.devices) for other in work.batch.launches),
        rule=setting.rule,
        data=files.place if files else None,
        read_bytes_per_s=reader_budget(setting.io.get(launch.test)),
        environment=own,
        requested_s=requested_s,
    )
    attempt = equipment.books.attempt(launch) if launch in work.wanted else 0
    log = Log(equipment.folder.log(launch.label, launch.job_id, attempt))
    return Tenant(launch, task, groups, log)
