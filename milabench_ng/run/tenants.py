"""Makes the tenants of a batch: fence, task and environment of each launch."""

from __future__ import annotations

from typing import Any

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.io import reader_budget
from milabench_ng.fence.sharing.shares import environment
from milabench_ng.model.plan import Batch, Launch
from milabench_ng.node.drivers.visibility import device_files, visible
from milabench_ng.records.late_steps import late_steps
from milabench_ng.run.execution.logs import Log
from milabench_ng.run.execution.tenant import Tenant
from milabench_ng.run.outcome.run_context import RunContext
from milabench_ng.worker.requests import RankSlot, Task


def make_tenant(
    launch: Launch,
    batch: Batch,
    context: RunContext,
    requested_s: float,
    log: Log,
    *,
    trial: str = "",
    **task_fields: Any,
) -> Tenant:
    """Make the fence of a launch of ``batch``; its worker is not started yet.

    ``trial``: makes the names of its groups its own, since those of an earlier trial may not be gone.
    ``task_fields``: more of its `Task`.
    """
    planned = context.facts.planned
    groups: dict[str, Group] = {
        slot: context.fence.create(f"b{batch.number}{trial}-d{slot}", planned.share(launch.test, slot))
        for slot in launch.slot_ids
    }
    devices = [planned.devices[slot] for slot in launch.slot_ids]
    own_files = device_files(devices, context.gpus)
    seats = tuple(
        RankSlot(
            slot=slot,
            device=planned.devices[slot],
            entry=msgspec.to_builtins(msgspec.structs.replace(groups[slot].entry, device_files=own_files)),
            threads=planned.shares[slot].cores,
            memory_part=planned.shares[slot].device_part,
        )
        for slot in launch.slot_ids
    )
    own = {**context.environment, **environment(groups[launch.slot_ids[0]].share)}
    files = context.files(launch)
    own |= visible(devices, context.gpus)
    task = Task(
        workload=launch.workload,
        arguments=launch.arguments,
        seats=seats,
        processes=sum(len(other.devices) for other in batch.launches),
        rule=planned.rule,
        data=files.place if files else None,
        read_bytes_per_s=reader_budget(planned.io.get(launch.test)),
        environment=own,
        requested_s=requested_s,
        late_steps=late_steps(planned.plan.nonce, launch.label),
        **task_fields,
    )
    return Tenant(launch, task, groups, log)
