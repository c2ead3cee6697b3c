"""Runs the main job: from a request to a folder of records."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from milabench_ng import __version__
from milabench_ng.fence.choosing import open_fence, reap
from milabench_ng.fence.claims import Claim
from milabench_ng.fence.entry import adopt_orphans
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.kernel.processes import Family, proc_is_ours
from milabench_ng.model.errors import InputError, IsolationError, MnbError
from milabench_ng.model.plain import encodable, quoted
from milabench_ng.model.plan import Plan
from milabench_ng.model.units import counted, utc_iso, utc_now
from milabench_ng.node.drivers.opening import BACKENDS, read_gpus
from milabench_ng.node.foreign_load import busy_note
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.storage import Storage
from milabench_ng.records.isolation import Isolation, Share, Tier
from milabench_ng.records.ledger import CodeSeen, ended_by_itself, of_last_session
from milabench_ng.records.worker_variables import STORAGE_VARIABLE
from milabench_ng.run.batches import run
from milabench_ng.run.display.json_lines import JsonLines
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.events.run_events import RunBegins, RunEnds
from milabench_ng.run.execution.environment import PYCACHE, site_hooks, worker_environment
from milabench_ng.run.execution.interruption import Interrupted, interruptions
from milabench_ng.run.execution.machinery import Machinery
from milabench_ng.run.execution.node_reader import NodeReader, driver_sessions
from milabench_ng.run.execution.preparing import needed, prepare_all
from milabench_ng.run.execution.sampling import Sampler, measure_idle
from milabench_ng.run.execution.scratch import scratch_folder, scratch_parent, unfit
from milabench_ng.run.execution.serving import poor_scheduling, serving
from milabench_ng.run.execution.starting import ColdStarter
from milabench_ng.run.execution.strays import running
from milabench_ng.run.execution.waiting import in_thread
from milabench_ng.run.execution.worker_server import check_threads
from milabench_ng.run.outcome.observation import SessionFacts
from milabench_ng.run.outcome.run_context import Judge, RunContext
from milabench_ng.run.persistence.result_writer import ResultWriter
from milabench_ng.run.persistence.resuming import read_manifest
from milabench_ng.run.persistence.run_progress import RunProgress
from milabench_ng.run.persistence.sessions import (
    LedgerSession,
    SessionName,
    begin,
    check_node,
    check_work,
    counts_with_the_last,
    name_session,
    opened,
    refuse_folders,
    settle,
    with_last_spool,
)
from milabench_ng.run.planning.duration import least_duration
from milabench_ng.run.planning.planned_run import PlannedRun, fenceable, find_places, make_manifest, plan_run
from milabench_ng.run.planning.refusals import refuse_undecodable, refuse_unset, tests_ahead
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.run.proving import Proving, prove
from milabench_ng.telemetry.host_power import is_metered

Ahead = Callable[[PlannedRun], Iterable[str]]
"""What to tell the user of a run before it begins."""


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    folder: Path
    planned: int
    failed: int
    missing: int
    """Launches that later sessions are to run."""
    helpful_retry: int | None
    """With which ``retry`` failed launches run again; None if none failed in its last attempt."""
    interrupted: signal.Signals | None
    """What ended it early."""
    tier: Tier


async def jobs(
    request: RunRequest, bus: Bus, command_line: tuple[str, ...], judge: Judge, ahead: Ahead = lambda _: ()
) -> RunOutcome:
    """Run a request to its end. Bad input and missing isolation raise before anything runs.

    ``judge``: says how well the figures of a folder are known, for a run that stops when they are known well.
    """
    refuse_undecodable(request)
    tests = tests_ahead(request)
    if not request.resume:
        refuse_folders(request)
    name = name_session(request)
    request = with_last_spool(request, name, bus.note)
    if (over := already_over(request, bus.note)) is not None:
        bus.note(nothing_left(over))
        return over
    if not proc_is_ours():
        raise IsolationError(
            "isolation: /proc shows the processes of another pid namespace, so mnb cannot tell its own "
            "processes from others. Mount /proc of this namespace (unshare --mount-proc)."
        )
    foreign = tuple(map(Family, running()))
    async with AsyncExitStack() as stack:  # last opened, first closed
        interrupted = await stack.enter_async_context(interruptions(bus.note))
        drivers = await interrupted.unless(stack.enter_async_context(driver_sessions()))
        scratch = stack.enter_context(temporary(name.group))
        if scratch.parent != Path(tempfile.gettempdir()):
            given = Path(tempfile.gettempdir())
            bus.note(f"temporary files of the workers go to {scratch}: {given} {unfit(given)}")
        gpus = (await interrupted.unless(in_thread(lambda: read_gpus(drivers)))).devices
        environment, dropped = passed_on(scratch, request.pass_environment, bus)
        for text in poor_scheduling():
            bus.note(text)
        capabilities = await interrupted.unless(in_thread(lambda: fenceable(request)))
        places = await interrupted.unless(in_thread(lambda: find_places(request, tests, gpus, capabilities)))
        await interrupted.unless(in_thread(lambda: check_node(request, places, capabilities)))
        claim = stack.enter_context(Claim(places.resources, name.group, request.allow_concurrent))
        server = await interrupted.unless(stack.enter_async_context(serving(bus.stage, environment)))
        planned = await interrupted.unless(plan_run(request, places, server, capabilities))
        if planned.start == "warm":
            check_threads(server.threads)
        check_work(request, planned.plan)
        said = await interrupted.unless(in_thread(lambda: tuple(ahead(planned))))
        busy = await interrupted.unless(in_thread(lambda: busy_note(request.rule.length_s)))
        for text in (*planned.notes, *busy, *said):
            bus.note(text)
        writer = stack.enter_context(opened(request, bus.note))
        if joined := counts_with_the_last(writer.chain, request.sessions, utc_now()):
            bus.note(joined)
        stack.push_async_exit(partial(settle, writer, name, interrupted))
        wanted = needed(planned.plan, planned.catalogue)
        data = await interrupted.unless(prepare_all(wanted, server, request.dataroot, bus.preparing))
        bus.stage("checking code and data against their checksums")
        environment |= stack.enter_context(storage(planned, name.group))
        proofs = await interrupted.unless(prove("before", request, wanted, server, bus.note))
        sampler = await stack.enter_async_context(sampling(planned, environment))
        fence = stack.enter_context(fenced(planned, name.group, bus))
        manifest = await interrupted.unless(in_thread(lambda: make_manifest(planned, name.run_id, fence, command_line)))
        uuids = [device.uuid for device in planned.plan.devices if device.uuid]
        if not request.resume and (uuids or is_metered()):
            bus.stage("measuring the idle power")
            idle = await interrupted.unless(measure_idle(sampler, uuids))
            manifest = msgspec.structs.replace(manifest, idle=idle)
        begun = begin(request, writer, manifest, name, command_line)
        writer.keep((), *proofs)
        context = RunContext(
            environment=environment,
            facts=session_facts(planned, begun, fence, gpus, manifest.storage["dataroot"], dropped),
            fence=fence,
            claim=claim,
            starter=server if planned.start == "warm" else ColdStarter(),
            sampler=sampler,
            node=NodeReader(drivers, gpus),
            gpus=gpus,
            data=data,
            folder=writer.folder,
            progress=progress_of(planned.plan, writer, request),
            judge=judge,
            own_pids=(os.getpid(), sampler.pid),
            machinery=Machinery(),
            foreign=foreign,
            interrupted=interrupted,
        )
        await run_session(context, partial(prove, "after", request, wanted, server, bus.note), bus)
        return outcome(context.progress, fence.tier, interrupted.by)


def already_over(request: RunRequest, tell: Callable[[str], None]) -> RunOutcome | None:
    """How the resumed run ended, if nothing is left of it but what its spool holds; else its folder stays as it is.

    Code that was not compared at the end is compared by a session.
    """
    if not request.resume:
        return None
    manifest = read_manifest(request.outdir)
    with opened(request, tell) as writer:
        progress = progress_of(manifest.plan, writer, request)
        events = writer.chain.events
        compared = any(isinstance(event, CodeSeen) and event.edge == "after" for event in of_last_session(events))
        if not ended_by_itself(events) or not compared or progress.to_do():
            return None
        return outcome(progress, manifest.fence.tier, None)


def nothing_left(over: RunOutcome) -> str:
    """What to say of a run that is resumed after its end. Pure."""
    if not over.failed:
        failed = ""
    elif over.helpful_retry is None:
        failed = f"; failed attempts: {over.failed}, all measured again since"
    else:
        failed = f"; failed attempts: {over.failed} (--retry {over.helpful_retry} tries failed launches again)"
    return f"nothing left to do: {over.planned} of {counted(over.planned, 'launch')} done{failed}"


def progress_of(plan: Plan, writer: ResultWriter, request: RunRequest) -> RunProgress:
    """What of a plan is done, and what a request has done next."""
    return RunProgress(plan, writer, request.retry, request.sessions, by_repeat=request.stopping is not None)


async def run_session(context: RunContext, prove_after: Callable[[], Proving], bus: Bus) -> None:
    """Run pending work, with the folder marked as in progress and events written to a file."""
    bus.add(JsonLines(context.folder.events))
    bus.publish(run_begins(context.facts.planned, context.facts.begun.name))
    progress, interrupted = context.progress, context.interrupted
    with progress.writer.going_on(), spared():
        await run(context, bus)
        if not interrupted.is_set():
            await keep_proofs(context, prove_after, bus)
        if interrupted.by:
            progress.interrupted(interrupted.by.name)
        progress.finish()
    missing, stopped, asked = progress.missing, interrupted.is_set(), context.facts.planned.request
    later = utc_iso(utc_now() + timedelta(seconds=asked.session_gap_s))
    continues = later if missing and asked.sessions > 1 and not stopped else None
    bus.publish(RunEnds(missing=missing, failed=progress.failed, interrupted=stopped, continues_utc=continues))


async def keep_proofs(context: RunContext, prove_after: Callable[[], Proving], bus: Bus) -> None:
    """Enter into the ledger what code and data are after the work. What prevents it costs no result."""
    bus.stage("checking code and data against their checksums")
    try:
        context.progress.writer.keep((), *await context.interrupted.unless(prove_after()))
    except Interrupted:
        bus.note(
            f"code and data were not checked after the work. To check them: mnb resume {quoted(context.folder.path)}"
        )
    except MnbError as error:
        bus.note(f"not checked against its checksums after the work: {error}")


def outcome(progress: RunProgress, tier: Tier, interrupted: signal.Signals | None) -> RunOutcome:
    return RunOutcome(
        folder=progress.writer.folder.path,
        planned=len(progress.plan.measured),
        failed=progress.failed,
        missing=progress.missing,
        helpful_retry=progress.helpful_retry,
        interrupted=interrupted,
        tier=tier,
    )


@contextmanager
def temporary(group: str) -> Iterator[Path]:
    """The session's folder for temporary files. Raises InputError if none can be made."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(scratch_folder(group, scratch_parent()))
        except OSError as error:
            raise InputError(f"no folder for temporary files: {error}. Free some space, or set TMPDIR") from None
        yield place


@contextmanager
def storage(planned: PlannedRun, group: str) -> Iterator[dict[str, str]]:
    """The variable that names a folder below the data root, for workloads that write files; empty without any."""
    writers = [launch.test for launch in planned.plan.launches if planned.workload(launch).stores]
    if not writers:
        yield {}
        return
    dataroot = planned.request.dataroot
    with ExitStack() as stack:
        try:
            dataroot.mkdir(parents=True, exist_ok=True)
            place = stack.enter_context(scratch_folder(group, dataroot))
        except OSError as error:
            raise InputError(
                f"{writers[0]} writes files below the data root {dataroot}: {error}. Choose another one (-d), "
                "or leave out the test (--name)"
            ) from None
        yield {STORAGE_VARIABLE: str(place)}


def passed_on(scratch: Path, demanded: Collection[str], bus: Bus) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment of all workers, and the names of what is withheld from them, which the user is told."""
    compiled = os.environ.get("MNB_PYCACHE") or str(scratch / "compiled")
    own = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TMPDIR": str(scratch), PYCACHE: compiled}
    refuse_unset(demanded)
    environment, names = worker_environment(os.environ, own, demanded)
    hooks = site_hooks()
    escaped = [name for name in environment if encodable(os.environ.get(name, "")) != os.environ.get(name, "")]
    if escaped:
        bus.note(f"{', '.join(escaped)}: contains bytes that are not UTF-8; workers receive them escaped (\\xff)")
    if named := ", ".join(name for name in names if name != "PYTHONPATH"):  # whose folders the workers import from
        how = "To keep one, use --pass-env of mnb jobs or mnb run"
        bus.note(f"dropped from the workers' environment (could change results): {named}. {how}")
    if hooks:
        bus.note(f"not run by the workers (could change results): {', '.join(hooks)} of this Python")
    return environment, (*names, *hooks)


def run_begins(planned: PlannedRun, name: SessionName) -> RunBegins:
    """The event for a session that is in the ledger. Pure."""
    plan = planned.plan
    return RunBegins(
        version=__version__,
        run_id=name.run_id,
        session=name.session,
        suite=plan.suite,
        batches=len(plan.batches),
        launches=len(plan.measured),
        least_s=least_duration(plan, planned.request.rule, planned.start).total_s,
        settle_s=planned.request.rule.settle_s,
        window_s=planned.request.rule.length_s,
    )


@asynccontextmanager
async def sampling(planned: PlannedRun, environment: Mapping[str, str]) -> AsyncIterator[Sampler]:
    """Run a sampler of the run's devices while it is needed."""
    sampler = Sampler(environment, (device.uuid for device in planned.devices.values() if device.uuid))
    try:
        yield sampler
    finally:
        await sampler.close()


@contextmanager
def fenced(planned: PlannedRun, run_id: str, bus: Bus) -> Iterator[Fence]:
    """Open the fence of a run whose CPUs and devices are claimed; remove it and everything in it afterwards."""
    adopt_orphans()
    for backend in BACKENDS.values():
        backend.make_nodes()
    for text in reap(planned.capabilities, planned.request.allow_concurrent):
        bus.note(text)
    holds = ", ".join(device.uuid or f"CPU partition {device.index}" for device in planned.plan.devices)
    fence = open_fence(planned.capabilities, planned.isolation, run_id, holds)
    try:
        for text in fence.notes:
            bus.note(text)
        yield fence
    finally:
        for text in fence.close():
            bus.note(text)


@contextmanager
def spared() -> Iterator[None]:
    """Lower this process's OOM score, so that if the node runs out of memory the kernel kills a tenant and not this
    process with all tenants and records (proc(5), oom_score_adj). Processes started before keep theirs."""
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    with suppress(PermissionError):  # needs CAP_SYS_RESOURCE: root has it, in most containers
        score.write_text("-900")
    try:
        yield
    finally:
        with suppress(PermissionError):
            score.write_text(before)


def session_facts(
    planned: PlannedRun,
    begun: LedgerSession,
    fence: Fence,
    gpus: Sequence[Gpu],
    dataroot: Storage,
    dropped: tuple[str, ...],
) -> SessionFacts:
    """What all records of the session share."""
    boards = {gpu.uuid: gpu.board for gpu in gpus}
    return SessionFacts(
        planned=planned,
        begun=begun,
        hostname=socket.gethostname(),
        boards={slot.id: boards[slot.device.uuid] for slot in planned.layout if slot.device.uuid},
        fence=fence_part(fence, planned.layout[0].share),
        dataroot=dataroot,
        dropped_environment=dropped,
    )


def fence_part(fence: Fence, share: Share) -> Isolation:
    """The run's part of a record's isolation; ``share`` is a placeholder for the tenant's own."""
    return Isolation(
        backend=fence.backend,
        groups_by=fence.groups_by,
        tier=fence.tier,
        mode=fence.mode,
        kernel=fence.kernel,
        parent=fence.parent,
        group="",
        requested=share,
        notes=fence.notes,
    )
