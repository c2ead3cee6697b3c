"""What a run would be, without running it: plan, shares, isolation, and how long it takes at least."""

from __future__ import annotations

from typing import Literal

import msgspec

from milabench_ng.catalogue import Scalar, Workload
from milabench_ng.fence.choosing import choose
from milabench_ng.node.gpus import open_nvml, read_gpus
from milabench_ng.orchestrator.display.reporter import Reporter
from milabench_ng.orchestrator.execution.pacing import EDGE_S
from milabench_ng.orchestrator.execution.preparing import Needed, needed
from milabench_ng.orchestrator.execution.serving import serving
from milabench_ng.orchestrator.execution.watchdog import START_S, least_work_s
from milabench_ng.orchestrator.planning.prospect import Prospect, plan_run, shares_by_device
from milabench_ng.orchestrator.planning.request import RunRequest
from milabench_ng.plan import Launch, Plan
from milabench_ng.records.isolation import Share, Tier
from milabench_ng.records.window import WindowRule

SERVER_S = 5.0
"""Allowance for importing torch and the workloads, once a run."""


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run takes at least, in seconds. Work counts, slow steps and data generation come on top."""

    work_s: float
    """From the common start to the common stop, over all batches."""
    start_s: float
    """The allowances for what lies between."""

    @property
    def total_s(self) -> float:
        """Both."""
        return self.work_s + self.start_s


class Foresight(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was planned in order to be shown."""

    prospect: Prospect
    shares: dict[int, Share]
    """By device index."""
    data: tuple[Needed, ...]
    backend: str
    tier: Tier
    duration: Duration


async def foresee(request: RunRequest, reporter: Reporter) -> Foresight:
    """Plan ``request`` as a run would. Starts no tenant, makes no folder, prepares no data.

    Raises InputError and IsolationError as the run itself.
    """
    with open_nvml() as nvml:
        gpus = read_gpus(nvml).devices
    async with serving(reporter.stage) as server:
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


def least_duration(plan: Plan, rule: WindowRule, start: Literal["warm", "cold"]) -> Duration:
    """The least time that ``plan`` takes: a full window for every batch, and the allowances. Pure."""
    return Duration(
        work_s=sum(max(least_work_s(one.arguments, rule) for one in batch.launches) for batch in plan.batches),
        start_s=SERVER_S + (START_S[start] + 2 * EDGE_S) * len(plan.batches),
    )


def changed_options(launch: Launch, workload: Workload) -> dict[str, Scalar | None]:
    """The options of ``launch`` that differ from the workload's defaults. Pure."""
    defaults = {option.name: option.default for option in workload.options}
    return {name: value for name, value in launch.arguments.items() if value != defaults.get(name)}
