"""Makes the record of a launch from what was planned, reported and observed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from milabench_ng import __version__
from milabench_ng.model.catalogue import Workload
from milabench_ng.model.plan import Launch
from milabench_ng.node.conditions import edges
from milabench_ng.records.batch_search import SEARCH_PHASE
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.precision_seen import PrecisionSeen
from milabench_ng.records.record import (
    Call,
    CodeSource,
    Mnb,
    Rank,
    Record,
    Timing,
    timing_name,
)
from milabench_ng.records.verified import Verified
from milabench_ng.records.window import SliceRow, Window, backlog_edges
from milabench_ng.run.execution.tenant import RankLog
from milabench_ng.run.outcome.marking import marks
from milabench_ng.run.outcome.observation import Observation, SessionFacts
from milabench_ng.run.outcome.skipped import skipped
from milabench_ng.telemetry.messages import telemetry_key


def make_record(facts: SessionFacts, seen: Observation) -> Record:
    launch = seen.launch
    workload = facts.planned.workload(launch)
    first = facts.planned.devices[launch.slot_ids[0]]
    return Record(
        name=launch.test,
        job_id=launch.job_id,
        dataroot=str(facts.planned.request.dataroot),
        outdir=str(facts.planned.request.outdir),
        job={
            "workload": launch.workload,
            "arguments": launch.arguments,
            "partition_scheme": {"type": launch.scheme},
        },
        device=launch.devices[-1],
        devices=launch.devices,
        call=Call(function=workload.origin, argv=argv(launch), arguments=launch.arguments),
        success=seen.failure is None,
        error=None if seen.failure is None else seen.failure.traceback or seen.failure.detail,
        hostname=facts.hostname,
        gpu=None if first.kind == "cpu" else first.name,
        device_count=len(launch.devices),
        environ={
            "CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in launch.devices),
            "MILARUN_DATAROOT": str(facts.planned.request.dataroot),
        },
        metrics=metrics(seen.ranks),
        timings=timings(seen),
        gpu_monitor=seen.gpu_monitor,
        mnb=_ours(facts, seen, workload),
    )


def argv(launch: Launch) -> tuple[str, ...]:
    """The launch's arguments as a command line."""
    pairs = ((f"--{name.replace('_', '-')}", value) for name, value in launch.arguments.items() if value is not None)
    return tuple(word for flag, value in pairs for word in (flag, str(value)))


def metrics(ranks: Sequence[RankLog]) -> dict[str, float | None]:
    """Numbers only, as in 2020: the last loss read."""
    losses = [loss for rank in ranks for loss in rank.losses.values()]
    return {"loss": losses[-1]} if losses and losses[-1] is not None else {}


def timings(seen: Observation) -> dict[str, Timing]:
    """The timings of 2020: the program, and each rank's slices as rates in true items per second."""
    start = seen.started.timestamp()
    wall = seen.ended_s - seen.requested_s
    timed = {"program": Timing(type="program", start=start, end=start + wall, time=wall)}
    for number, rank in enumerate(seen.ranks):
        rows = rank.slices
        if not rows:
            continue
        seconds = math.fsum(row.length_s for row in rows)
        began = start + rows[0].start_s - seen.requested_s
        timed[timing_name(seen.launch, number)] = Timing(
            type="train",
            start=began,
            end=began + seconds,
            time=seconds,
            wall_time=rows[-1].end_s - rows[0].start_s,
            overhead=0.0,
            sample_duration=float(seen.launch.arguments["sample_duration"] or 0),
            rates=rates(rows, seen.window),
            metrics={},
        )
    return timed


def rates(rows: Sequence[SliceRow], window: Window | None) -> list[float]:
    """Items per second of each slice, from the window's first: readers of 2020 average ``rates[-20:-2]``.

    Without a window, covers all slices.
    """
    return [row.count / row.length_s for row in rows if window is None or row.start_s >= window.start_s]


def _ours(facts: SessionFacts, seen: Observation, workload: Workload) -> Mnb:
    launch = seen.launch
    return Mnb(
        version=__version__,
        run_id=facts.begun.name.run_id,
        started_utc=seen.started,
        session=facts.begun.name.session,
        attempt=seen.attempt,
        batch=seen.batch,
        launch=launch,
        label=launch.label,
        unit=workload.unit,
        bound=workload.bound,
        classic_factor=workload.classic_factor,
        derived=workload.derived,
        pace_only=workload.pace_only or msgspec.UNSET,
        paced_by=workload.paced(launch.arguments) or msgspec.UNSET,
        source=CodeSource(
            workload=workload.name,
            origin=workload.origin,
            package=workload.package,
            sha256=workload.source_sha256,
            modules=workload.source_modules,
        ),
        devices=tuple(facts.planned.devices[slot] for slot in launch.slot_ids),
        environment=seen.environment,
        dropped_environment=facts.dropped_environment,
        start=facts.planned.start,
        phases_s=_phases(seen),
        batch_search=seen.batch_search or msgspec.UNSET,
        start_to_ready_s=None if seen.ready_s is None else seen.ready_s - seen.requested_s,
        start_s=seen.start_s,
        stop_s=seen.stop_s,
        window_rule=facts.planned.rule,
        window=seen.window,
        ranks=[_rank(facts, seen, number, rank) for number, rank in enumerate(seen.ranks)],
        precision=_precision(launch, seen.ranks[0]),
        data=seen.data,
        neighbours=seen.neighbours,
        isolation=_isolation(facts, seen),
        conditions=edges(*seen.conditions),
        xids=_xids(facts, seen),
        surroundings={"before": seen.surroundings[0], "after": seen.surroundings[1]},
        host_pace={at: {"before": first, "after": last} for at, (first, last) in seen.host_pace.items()},
        telemetry=seen.telemetry,
        gpu_load=seen.gpu_load or msgspec.UNSET,
        sampled=seen.sampled,
        power_fraction=_power_fractions(facts, seen) or msgspec.UNSET,
        endurance=seen.endurance or msgspec.UNSET,
        failure=seen.failure,
        exit_status=seen.exit_status,
        marks=marks(facts, seen),
    )


def _xids(facts: SessionFacts, seen: Observation) -> dict[str, tuple[int, ...]]:
    """Those of its own GPUs."""
    boards = {facts.boards[slot] for slot in seen.launch.slot_ids if slot in facts.boards}
    return {board: tuple(numbers) for board, numbers in seen.xids.items() if board in boards}


def _power_fractions(facts: SessionFacts, seen: Observation) -> dict[str, float]:
    """The mean power of each GPU over the limit in force before the batch, by slot; none where either is unknown."""
    found = {}
    node = seen.conditions[0].settings
    for slot in seen.launch.slot_ids if node else ():
        settings = node.gpus.get(facts.boards.get(slot, "")) if node else None
        uuid = facts.planned.devices[slot].uuid
        power = seen.telemetry.get(telemetry_key("gpu", uuid or ""), {}).get("power_w")
        if settings is not None and settings.enforced_power_limit_w and power is not None:
            found[slot] = power.mean / settings.enforced_power_limit_w
    return found


def _phases(seen: Observation) -> dict[str, float]:
    """The slowest rank's seconds, phase by phase; before them, the search for a batch size."""
    search = seen.batch_search
    before = {SEARCH_PHASE: search.seconds} if search and not search.reused else {}
    names = dict.fromkeys(name for rank in seen.ranks for name in rank.phases)
    return before | {name: max(rank.phases.get(name, 0.0) for rank in seen.ranks) for name in names}


def _rank(facts: SessionFacts, seen: Observation, number: int, rank: RankLog) -> Rank:
    return Rank(
        rank=number,
        device=seen.launch.devices[number],
        pid=rank.process.pid if rank.process else None,
        count=sum(row.count for row in rank.slices),
        full_s=rank.full_s,
        slices=rank.slices,
        backlog=_backlog(rank, seen.window),
        losses=rank.losses,
        gradient_norms=rank.gradient_norms,
        skipped=skipped(rank, seen.start_s, facts.planned.rule),
        digests=rank.digests,
        torch_threads=rank.entered.torch_threads if rank.entered else None,
        peak_device_bytes=rank.done.peak_device_bytes if rank.done else None,
        kernels=(rank.done.kernels if rank.done else None) or msgspec.UNSET,
        verified=_verified(rank),
    )


def _verified(rank: RankLog) -> Verified | msgspec.UnsetType:
    seen = rank.checked
    if seen is None:
        return msgspec.UNSET
    return Verified(
        unit=seen.unit,
        values=seen.values,
        checks=seen.checks,
        work=seen.work,
        wrong=seen.wrong,
        first=tuple(rank.mismatches),
    )


def _backlog(rank: RankLog, window: Window | None) -> tuple[float, float] | None:
    return None if window is None else backlog_edges([row for row in rank.slices if window.holds(row)])


def _precision(launch: Launch, rank: RankLog) -> PrecisionSeen | None:
    if rank.ready is None:
        return None
    return PrecisionSeen(
        requested=str(launch.arguments["precision"]),
        dtypes=rank.ready.dtypes,
        ran_before=rank.ready.ran,
        ran_after=rank.done.ran if rank.done else None,
        matmul_error_before=rank.ready.matmul_error,
        matmul_error_after=rank.done.matmul_error if rank.done else None,
        layer_dtype=rank.done.layer_dtype if rank.done else None,
    )


def _isolation(facts: SessionFacts, seen: Observation) -> dict[str, Isolation]:
    return {
        slot: msgspec.structs.replace(
            facts.fence,
            group=f"{facts.begun.name.group}/{seen.groups[slot]}",
            requested=seen.shares[slot],
            effective=evidence.effective,
            effective_end=evidence.effective_end,
            proc=evidence.proc,
            disjoint=seen.disjoint,
            usage=evidence.usage,
            events_before=evidence.before,
            events_after=evidence.after,
            io=evidence.io,
        )
        for slot, evidence in seen.evidence.items()
    }
