"""The main job: from a request to a folder of records."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from milabench_ng import __version__
from milabench_ng.errors import InputError
from milabench_ng.fence.backends import open_fence, reap
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.shares import Allocation
from milabench_ng.node.gpus import open_nvml, read_gpus
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.storage import read_storage
from milabench_ng.orchestrator.batch import Limits
from milabench_ng.orchestrator.environment import site_hooks, worker_environment
from milabench_ng.orchestrator.equipment import Equipment
from milabench_ng.orchestrator.preparing import needed, prepare_all
from milabench_ng.orchestrator.prospect import Prospect, plan_run
from milabench_ng.orchestrator.recording import Setting
from milabench_ng.orchestrator.request import (
    RunRequest,
)
from milabench_ng.orchestrator.run import Observer, run
from milabench_ng.orchestrator.sampling import Sampler
from milabench_ng.orchestrator.scratch import scratch_folder
from milabench_ng.orchestrator.starting import ColdStarter, WorkerServer, check_threads
from milabench_ng.records.isolation import Isolation, Share
from milabench_ng.records.manifest import FenceSummary, Manifest, ProfileText, encode_manifest, software_key
from milabench_ng.records.names import ResultFolder, write_atomically
from milabench_ng.requests import Estimated, Prepared, Progress
from milabench_ng.units import utc_iso, utc_now


class Reporter(Observer, Protocol):
    """Who is told what goes on."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def stage(self, text: str) -> None:
        """Something that may take longer than two seconds begins."""

    def preparing(self, answer: Estimated | Progress | Prepared) -> None:
        """A data set is being made ready."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    folder: Path
    planned: int
    failed: int
    interrupted: bool
    tier: str


@asynccontextmanager
async def serving(reporter: Reporter) -> AsyncIterator[WorkerServer]:
    """A worker server for as long as it is needed."""
    reporter.stage("importing torch and the workloads")
    environment, _ = worker_environment(os.environ, {})
    server = await WorkerServer.launch(environment)
    try:
        yield server
    finally:
        await server.close()


async def jobs(request: RunRequest, reporter: Reporter, command_line: tuple[str, ...]) -> Outcome:
    """Run a request to its end. Bad input and missing isolation are raised before anything has run."""
    run_id = f"{utc_now():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    with open_nvml() as nvml, scratch_folder(run_id) as scratch:
        gpus = read_gpus(nvml).devices
        async with serving(reporter) as server:
            prospect = await plan_run(request, server, gpus)
            if prospect.start == "warm":
                check_threads(server.threads)
            for text in prospect.notes:
                reporter.note(text)
            folder = make_folder(request.outdir)
            wanted = needed(prospect.plan, prospect.catalogue)
            data = await prepare_all(wanted, server, request.dataroot, reporter.preparing)
            environment, dropped = worker_environment(
                os.environ, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TMPDIR": str(scratch)}
            )
            dropped = (*dropped, *site_hooks())
            if dropped:
                reporter.note(f"not passed to the workers, since it loads code into them: {', '.join(dropped)}")
            async with sampling() as sampler:
                with fenced(request, prospect, run_id, reporter) as fence, interruptions(reporter) as interrupted:
                    equipment = Equipment(
                        environment=environment,
                        setting=make_setting(request, prospect, run_id, fence, dropped),
                        fence=fence,
                        starter=server if prospect.start == "warm" else ColdStarter(),
                        sampler=sampler,
                        nvml=nvml,
                        gpus=gpus,
                        data=data,
                        folder=folder,
                        cache=request.cache,
                        limits=Limits(),
                        own_pids=(os.getpid(), server.pid, sampler.pid),
                        interrupted=interrupted,
                    )
                    manifest = make_manifest(request, prospect, run_id, fence, command_line)
                    with promised(folder, manifest), spared():
                        failed = await run(prospect.plan, equipment, reporter)
                    return Outcome(
                        folder=folder.path,
                        planned=len(prospect.plan.launches),
                        failed=failed,
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


@contextmanager
def interruptions(reporter: Reporter) -> Iterator[asyncio.Event]:
    """Set by the first Ctrl-C or SIGTERM, which ends the batch cleanly; the second one ends the run at once."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt() -> None:
        reporter.note("interrupted: writing what is there; once more ends at once")
        interrupted.set()
        restore()

    def restore() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, interrupt)
    try:
        yield interrupted
    finally:
        restore()


def make_folder(path: Path) -> ResultFolder:
    """An empty result folder. Raises InputError where ``path`` holds something or cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        folder = ResultFolder(path.resolve())  # from here on no link is followed
        folder.logs.mkdir(exist_ok=True)
        taken = [entry.name for entry in path.iterdir() if entry.name != folder.logs.name or entry.is_symlink()]
    except OSError as error:
        raise InputError(f"-o {path}: {error.strerror}") from None
    if taken:
        raise InputError(f"-o {path}: holds {taken[0]!r} already; name a new folder")
    return folder


@contextmanager
def promised(folder: ResultFolder, manifest: Manifest) -> Iterator[None]:
    """The manifest written, and locked for as long as the run goes on: that is how a reader knows that it does."""
    write_atomically(folder.manifest, encode_manifest(manifest))
    with open(folder.manifest, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_setting(
    request: RunRequest,
    prospect: Prospect,
    run_id: str,
    fence: Fence,
    dropped: tuple[str, ...],
) -> Setting:
    """What all records of the run share."""
    return Setting(
        run_id=run_id,
        hostname=socket.gethostname(),
        dataroot=str(request.dataroot),
        outdir=str(request.outdir),
        devices={device.index: device for device in prospect.plan.devices},
        workloads=prospect.catalogue.workloads,
        shares=shares_by_device(prospect.allocation),
        io=prospect.io,
        fence=fence_part(fence, next(iter(prospect.allocation.shares.values()))),
        start=prospect.start,
        rule=request.rule,
        dropped_environment=dropped,
    )


def shares_by_device(allocation: Allocation) -> Mapping[int, Share]:
    """The shares by device index."""
    return {int(name): share for name, share in allocation.shares.items()}


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


def make_manifest(
    request: RunRequest, prospect: Prospect, run_id: str, fence: Fence, command_line: tuple[str, ...]
) -> Manifest:
    """What the result folder promises."""
    inventory = read_inventory()
    return Manifest(
        run_id=run_id,
        version=__version__,
        started_utc=utc_iso(utc_now()),
        command_line=command_line,
        profile=ProfileText(file=request.profile_source, sha256=prospect.profile.sha256, text=prospect.profile.text),
        plan=prospect.plan,
        window_rule=request.rule,
        start=prospect.start,
        dataroot=str(request.dataroot),
        inventory=inventory,
        storage={"dataroot": read_storage(request.dataroot), "outdir": read_storage(request.outdir)},
        fence=FenceSummary(
            requested=prospect.isolation,
            backend=fence.backend,
            tier=fence.tier,
            notes=fence.notes,
            ram_total_bytes=request.ram_total_bytes,
        ),
        software=inventory.versions,
        software_key=software_key(inventory),
        import_path=tuple(sys.path),
    )
