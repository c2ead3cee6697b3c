"""What a run would be, without running it: plan, shares, isolation, and how long it takes at least."""

from __future__ import annotations

import msgspec

from milabench_ng.catalogue import Scalar, Workload
from milabench_ng.fence.choosing import choose
from milabench_ng.node.gpus import open_nvml, read_gpus
from milabench_ng.orchestrator.events.bus import Bus
from milabench_ng.orchestrator.execution.preparing import Needed, needed
from milabench_ng.orchestrator.execution.serving import serving
from milabench_ng.orchestrator.planning.duration import Duration, least_duration
from milabench_ng.orchestrator.planning.prospect import Prospect, plan_run, shares_by_device
from milabench_ng.orchestrator.planning.request import RunRequest
from milabench_ng.plan import Launch
from milabench_ng.records.isolation import Share, Tier


class Foresight(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was planned in order to be shown."""

    prospect: Prospect
    shares: dict[int, Share]
    """By device index."""
    data: tuple[Needed, ...]
    backend: str
    tier: Tier
    duration: Duration


async def foresee(request: RunRequest, bus: Bus) -> Foresight:
    """Plan ``request`` as a run would. Starts no tenant, makes no folder, prepares no data.

    Raises InputError and IsolationError as the run itself.
    """
    with open_nvml() as nvml:
        gpus = read_gpus(nvml).devices
    async with serving(bus.stage) as server:
        prospect = await plan_run(request, server, gpus)
    backend = choose(prospect.capabilities, prospect.isolation)
    return Foresight(
        prospect=prospect,
        shares=dict(shares_by_device(prospect.allocation)),
        data=needed(prospect.plan, prospect.catalogue),
        backend=backend.NAME,
        tier=backend.tier(prospect.capabilities) or "none",
        duration=least_duration(prospect.plan, request.rule, prospect.start),
    )


def changed_options(launch: Launch, workload: Workload) -> dict[str, Scalar | None]:
    """The options of ``launch`` that differ from the workload's defaults. Pure."""
    defaults = {option.name: option.default for option in workload.options}
    return {name: value for name, value in launch.arguments.items() if value != defaults.get(name)}
