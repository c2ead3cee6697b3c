"""Plans a run without running it: plan, shares, isolation and least duration."""

from __future__ import annotations

import os

import msgspec

from milabench_ng.fence.choosing import choose
from milabench_ng.model.catalogue import Scalar, Workload
from milabench_ng.model.plan import Launch
from milabench_ng.node.drivers.opening import open_drivers, read_gpus
from milabench_ng.records.isolation import Tier
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.execution.libraries import LOOKED_AT, changed, compared
from milabench_ng.run.execution.preparing import Needed, needed
from milabench_ng.run.execution.serving import serving
from milabench_ng.run.planning.duration import Duration, least_duration
from milabench_ng.run.planning.planned_run import PlannedRun, fenceable, find_places, plan_run
from milabench_ng.run.planning.refusals import refuse_unset, tests_ahead
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.worker.requests import DataEstimate


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run planned only to be shown."""

    planned: PlannedRun
    data: tuple[Needed, ...]
    to_generate: DataEstimate
    backend: str
    tier: Tier
    duration: Duration
    changed: tuple[str, ...]
    """Libraries that are not as they were installed, as far as a look shows it."""


async def dry_run(request: RunRequest, bus: Bus) -> DryRun:
    """Plan ``request`` as a run would, without starting tenants, making folders or preparing data.

    Raises InputError and IsolationError like the run itself.
    """
    refuse_unset(request.pass_environment)
    with open_drivers() as drivers:
        gpus = read_gpus(drivers).devices
    tests = tests_ahead(request)
    capabilities = fenceable(request)
    places = find_places(request, tests, gpus, capabilities)
    async with serving(bus.stage) as server:
        planned = await plan_run(request, places, server, capabilities)
        data = needed(planned.plan, planned.catalogue)
        to_generate = await server.estimate(data, request.dataroot, len(os.sched_getaffinity(0)))
        code = await server.inspect(compared(), LOOKED_AT)
    backend = choose(planned.capabilities, planned.isolation)
    return DryRun(
        planned=planned,
        data=data,
        to_generate=to_generate,
        backend=backend.NAME,
        tier=backend.tier(planned.capabilities) or "none",
        duration=least_duration(planned.plan, request.rule, planned.start),
        changed=changed(code),
    )


def changed_options(launch: Launch, workload: Workload) -> dict[str, Scalar | None]:
    """The options of ``launch`` that differ from the workload's defaults, or are stated by memory class. Pure."""
    defaults = {option.name: option.default for option in workload.options}
    return {
        name: value
        for name, value in launch.arguments.items()
        if value != defaults.get(name) or name in launch.memory_classes
    }
