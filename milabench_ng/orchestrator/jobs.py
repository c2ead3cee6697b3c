"""The main job: from a request to a folder of records."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec

from milabench_ng.fence.choosing import open_fence, reap
from milabench_ng.fence.interface import Fence
from milabench_ng.node.faults import XidEvents
from milabench_ng.node.gpus import Gpu, open_nvml, read_gpus
from milabench_ng.orchestrator.display.reporter import Reporter
from milabench_ng.orchestrator.execution.environment import site_hooks, worker_environment
from milabench_ng.orchestrator.execution.interruption import interruptions
from milabench_ng.orchestrator.execution.preparing import needed, prepare_all
from milabench_ng.orchestrator.execution.sampling import Sampler
from milabench_ng.orchestrator.execution.scratch import scratch_folder
from milabench_ng.orchestrator.execution.serving import serving
from milabench_ng.orchestrator.execution.starting import ColdStarter, check_threads
from milabench_ng.orchestrator.outcome.run_context import Equipment
from milabench_ng.orchestrator.outcome.seen import Setting
from milabench_ng.orchestrator.persistence.run_progress import Books
from milabench_ng.orchestrator.persistence.sessions import Begun, begin, going_on, name_session, opened, settle
from milabench_ng.orchestrator.planning.prospect import Prospect, make_manifest, plan_run, shares_by_device
from milabench_ng.orchestrator.planning.request import RunRequest, time_limits
from milabench_ng.orchestrator.run import run
from milabench_ng.records.isolation import Isolation, Share


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    folder: Path
    planned: int
    failed: int
    interrupted: bool
    tier: str


async def jobs(request: RunRequest, reporter: Reporter, command_line: tuple[str, ...]) -> Outcome:
    """Run a request to its end. Bad input and missing isolation are raised before anything has run."""
    name = name_session(request)
    with open_nvml() as nvml, scratch_folder(name.group) as scratch:
        gpus = read_gpus(nvml).devices
        async with serving(reporter.stage) as server:
            prospect = await plan_run(request, server, gpus)
            limits = time_limits(prospect.plan, prospect.profile, request, prospect.start)
            if prospect.start == "warm":
                check_threads(server.threads)
            for text in prospect.notes:
                reporter.note(text)
            with opened(request) as keeper:
                keeper.tell = reporter.note
                wanted = needed(prospect.plan, prospect.catalogue)
                data = await prepare_all(wanted, server, request.dataroot, reporter.preparing)
                environment, dropped = worker_environment(
                    os.environ, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TMPDIR": str(scratch)}
                )
                dropped = (*dropped, *site_hooks())
                if dropped:
                    reporter.note(f"not passed to the workers, where it could change what runs: {', '.join(dropped)}")
                async with sampling() as sampler:
                    with (
                        fenced(request, prospect, name.group, reporter) as fence,
                        interruptions(reporter.note) as interrupted,
                    ):
                        manifest = make_manifest(request, prospect, name.run_id, fence, command_line)
                        begun = begin(request, keeper, manifest, name, command_line)
                        equipment = Equipment(
                            environment=environment,
                            setting=make_setting(request, prospect, begun, fence, gpus, dropped),
                            fence=fence,
                            starter=server if prospect.start == "warm" else ColdStarter(),
                            sampler=sampler,
                            nvml=nvml,
                            gpus=gpus,
                            data=data,
                            folder=keeper.folder,
                            cache=request.cache,
                            limits=limits,
                            xids=XidEvents(nvml, gpus),
                            books=Books(prospect.plan, keeper, request.retry, name.session),
                            own_pids=(os.getpid(), server.pid, sampler.pid),
                            interrupted=interrupted,
                        )
                        with going_on(keeper.folder), spared():
                            await run(equipment, reporter)
                        await settle(keeper, name, interrupted)
                        return Outcome(
                            folder=keeper.folder.path,
                            planned=len(prospect.plan.launches),
                            failed=equipment.books.failed,
                            interrupted=interrupted.is_set(),
                            tier=fence.tier,
                        )


@asynccontextmanager
async def sampling() -> AsyncIterator[Sampler]:
    """A sampler for as long as it is needed."""
    environment, _ = worker_environment(os.environ, {})
    sampler = Sampler(environment)
    try:
        yield sampler
    finally:
        await sampler.close()


@contextmanager
def fenced(request: RunRequest, prospect: Prospect, run_id: str, reporter: Reporter) -> Iterator[Fence]:
    """The fence of the run, removed with everything in it afterwards."""
    holds = ", ".join(device.uuid or f"CPU partition {device.index}" for device in prospect.plan.devices)
    for text in reap(prospect.capabilities, request.allow_concurrent):
        reporter.note(text)
    fence = open_fence(prospect.capabilities, prospect.isolation, run_id, holds)
    try:
        for text in fence.notes:
            reporter.note(text)
        yield fence
    finally:
        fence.close()


@contextmanager
def spared() -> Iterator[None]:
    """When the whole node runs out of memory, the kernel is to take a tenant and not this process, which would take all
    of them and their records along (proc(5), oom_score_adj). What it has started already is not meant."""
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    with suppress(PermissionError):  # it needs CAP_SYS_RESOURCE: root has it, in most containers
        score.write_text("-900")
    try:
        yield
    finally:
        with suppress(PermissionError):
            score.write_text(before)


def make_setting(
    request: RunRequest,
    prospect: Prospect,
    begun: Begun,
    fence: Fence,
    gpus: Sequence[Gpu],
    dropped: tuple[str, ...],
) -> Setting:
    """What all records of the session share."""
    boards = {gpu.uuid: gpu.board for gpu in gpus}
    return Setting(
        run_id=begun.name.run_id,
        session=begun.name.session,
        group=begun.name.group,
        differences=begun.differences,
        hostname=socket.gethostname(),
        dataroot=str(request.dataroot),
        outdir=str(request.outdir),
        devices={device.index: device for device in prospect.plan.devices},
        boards={device.index: boards[device.uuid] for device in prospect.plan.devices if device.uuid},
        workloads=prospect.catalogue.workloads,
        shares=shares_by_device(prospect.allocation),
        io=prospect.io,
        fence=fence_part(fence, next(iter(prospect.allocation.shares.values()))),
        start=prospect.start,
        rule=request.rule,
        dropped_environment=dropped,
    )


def fence_part(fence: Fence, share: Share) -> Isolation:
    """The part of a record's isolation that is the run's; ``share`` stands in until the tenant's own is put there."""
    return Isolation(
        backend=fence.backend,
        tier=fence.tier,
        mode=fence.mode,
        kernel=fence.kernel,
        parent=fence.parent,
        group="",
        requested=share,
        notes=fence.notes,
    )
