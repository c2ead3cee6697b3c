"""Prints the plan of a run instead of running it: ``mnb jobs --dry-run``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from milabench_ng.cli.shares import share_section
from milabench_ng.cli.showing import shown
from milabench_ng.fence.choosing import enter_scope
from milabench_ng.model.plan import Batch, Launch
from milabench_ng.model.shipped import names
from milabench_ng.model.similar import did_you_mean
from milabench_ng.model.units import counted, format_bytes, format_limit, format_seconds
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.node.foreign_load import busy_note
from milabench_ng.present.render.cells import whole
from milabench_ng.present.render.sections import Facts, Heading, Section, facts, table
from milabench_ng.present.render.terminal import write_parts
from milabench_ng.records.isolation import IoEvidence
from milabench_ng.run.execution.interruption import interruptible
from milabench_ng.run.execution.preparing import require_space
from milabench_ng.run.persistence.sessions import refuse_folders
from milabench_ng.run.planning.dry_run import DryRun, changed_options, dry_run
from milabench_ng.run.planning.refusals import refuse_undecodable
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.worker.requests import DataEstimate


def show_plan(request: RunRequest, weights: Path | None = None, made: DryRun | None = None) -> int:
    """Print devices, shares, isolation, batches and estimated duration of a run; return the exit code.

    ``made``: the plan of the request, if there is one already.
    """
    dry = made or _planned(request)
    write_parts([share_section(dry.planned.layout), _batches(dry), _facts(dry, request, weights)], sys.stdout)
    require_space(dry.to_generate, request.dataroot)
    return 0


def _planned(request: RunRequest) -> DryRun:
    refuse_undecodable(request)
    refuse_folders(request)
    enter_scope(request.isolation, request.cgroup_parent)
    with shown() as bus:
        return asyncio.run(interruptible(dry_run(request, bus)))


def _batches(dry: DryRun) -> Section:
    """All launches of a batch are the same test with the same options."""
    rows = (
        (batch.number + 1, first.label, first.run, _devices(batch), len(batch.launches), _changed(first, dry) or None)
        for batch in dry.planned.plan.batches
        for first in batch.launches[:1]
    )
    run, launches = (Heading(title, "", whole, True) for title in ("run", "launches"))
    batch = Heading("group", "", whole, True, key="batch")
    return table("launch groups, in this order", rows, batch, "test", run, "devices", launches, "changed options")


def _devices(batch: Batch) -> str:
    if all(len(launch.devices) == 1 for launch in batch.launches):
        return format_ids(launch.devices[0] for launch in batch.launches)
    return ", ".join("+".join(map(str, launch.devices)) for launch in batch.launches)


def _changed(launch: Launch, dry: DryRun) -> str:
    options = changed_options(launch, dry.planned.catalogue.workloads[launch.workload])
    return " ".join(f"{name}={value}{_from_table(launch, name)}" for name, value in options.items())


def _from_table(launch: Launch, option: str) -> str:
    """Which class of the profile's table an option comes from; empty for any other option."""
    size = launch.memory_classes.get(option)
    return f" (class {size})" if size else ""


def _facts(dry: DryRun, request: RunRequest, weights: Path | None) -> Facts:
    from milabench_ng.cli.foreseen import foreseen

    plan, duration = dry.planned.plan, dry.duration
    groups = counted(len(plan.batches), "launch group")
    data = ", ".join(f"{name} (scale {scale:g})" for name, scale in dry.data)
    mark = "" if dry.tier == "full" else ", NOT ISOLATED (run mnb doctor to see why and what to do)"
    left = dry.planned.leftover_cpus
    estimate = (
        f"at least {format_seconds(duration.total_s)}: {format_seconds(duration.work_s)} of work and "
        f"{format_seconds(duration.start_s)} for startup"
    )
    if request.session_gap_s:
        estimate += f"; and {request.sessions - 1} x {format_seconds(request.session_gap_s)} between sessions"
    pairs = [
        ("isolation", f"{dry.tier} (through {dry.backend}){mark}"),
        ("unused CPUs", format_ids(left) or "none"),
        ("datasets", f"{data} in {request.dataroot}" if data else "none"),
        ("to generate", _generating(dry.to_generate)),
        (
            "launches",
            f"{len(plan.launches)} in {groups}, {dry.planned.start} start",
        ),
        ("estimated time", estimate),
        ("weights", _weighted(sorted({launch.suite for launch in plan.launches})) if weights is None else str(weights)),
        ("expected warnings", foreseen(dry.planned, weights) or "none"),
    ]
    shares = [(f"I/O limit of {test}", io_text(io)) for test, io in dry.planned.io.items()]
    return facts(
        "",
        [
            *pairs,
            *shares,
            *(("note", note) for note in (*busy_note(request.rule.length_s), *dry.planned.notes, *dry.changed)),
        ],
    )


def _weighted(suites: Sequence[str]) -> str:
    """What the score of each suite rests on."""
    known = names("weights")
    shipped = ", ".join(one for one in suites if one in known)
    without = [
        f"none for {one}: no weights are shipped for it{did_you_mean(one, known)}" for one in suites if one not in known
    ]
    return "; ".join([f"shipped weights of {shipped}", *without] if shipped else without)


def _generating(estimated: DataEstimate) -> str:
    """What a run would generate first."""
    size, seconds = (sum(getattr(effort, what) for effort in estimated.efforts) for what in ("bytes", "seconds"))
    if not size:
        return "nothing"
    return f"{format_bytes(size)} of {format_bytes(estimated.free_bytes)} free, {format_seconds(seconds)}"


def io_text(io: IoEvidence) -> str:
    """Rates per tenant, and what enforces them."""
    rates = (
        ("reads", io.read_bytes_per_s),
        ("writes", io.write_bytes_per_s),
    )
    shown = ", ".join(f"{what} {format_limit(rate)}" for what, rate in rates if rate)
    how = {"none": "not enforced: no isolation", "readers": "enforced by the dataset's readers"}
    return f"{shown} for each tenant, {how.get(io.method) or f'enforced by {io.method} on {io.disk}'}"
