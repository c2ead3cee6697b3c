"""Run events in words, for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from milabench_ng.model.profile import name_of
from milabench_ng.model.units import counted, format_bytes, format_seconds
from milabench_ng.run.events.run_events import (
    AnyRunEvent,
    BatchBegins,
    BatchProgress,
    LaunchEnds,
    LaunchSlots,
    Note,
    Preparing,
    RunEvent,
    Stage,
)
from milabench_ng.worker.requests import DataEstimate, DataProgress, Prepared

SHOWN: tuple[type[RunEvent], ...] = (Note, Stage, Preparing, BatchBegins, BatchProgress, LaunchEnds)
"""The events that are said in words."""


class Said(msgspec.Struct, frozen=True):
    """A message to the user."""

    kind: Literal["note", "line", "stage", "progress"]
    """A note stands out and a line stays. Where nothing can be overwritten, a stage stays too, as does progress now and
    then."""
    text: str


def said(event: AnyRunEvent, batch: BatchBegins | None) -> Said | None:
    """What to say about ``event`` during ``batch``; None for nothing."""
    where = "" if batch is None else heading(batch)
    match event:
        case Note():
            return Said("note", event.text)
        case Stage():
            return Said("stage", f"{event.text} ...")
        case Preparing():
            return preparing(event.answer)
        case BatchBegins():
            return Said("stage", f"{heading(event)}: starting")
        case BatchProgress():
            return Said("progress", f"{where}: {progress(event, batch)}")
        case LaunchEnds():
            return Said("line", f"{where}: {_launch(event, batch)} {result(event)}")
    return None


def preparing(answer: DataEstimate | DataProgress | Prepared) -> Said | None:
    """How a dataset is being prepared; None for one that was there already."""
    match answer:
        case DataEstimate():
            return Said("line", estimate_text(answer))
        case DataProgress():
            return Said("progress", f"generating dataset {answer.name}: {answer.done:,} of {answer.total:,} items")
        case Prepared() if answer.generated:
            return Said("line", f"dataset {answer.place.name} is ready: {answer.place.path}")
    return None


def heading(batch: BatchBegins) -> str:
    """``"[3/20] standard.vae, run 0, 8 tenants"``, ``"[4/45] s.loader_beside_noise, run 0, GPU 0 beside noise"``."""
    return f"[{batch.number + 1}/{batch.of}] {batch.label}, run {batch.run}, {_who(batch.launches)}"


def _who(launches: Sequence[LaunchSlots]) -> str:
    """Who works in a batch: how many, or the measured one with what it runs beside."""
    company = dict.fromkeys(name_of(one.label) for one in launches if one.role == "company")
    measured = [one for one in launches if one.role == "measured"]
    if company:
        places = ", ".join(device for one in measured for device in one.devices or one.slots)
        return f"{places} next to {', '.join(company)}"
    if len(measured) == 1:
        return counted(len(measured[0].slots), "device")
    return counted(len(measured), "tenant")


def progress(event: BatchProgress, batch: BatchBegins | None) -> str:
    """Who is ready, or how fast each tenant is."""
    if event.working_s is None:
        return f"{event.ready} of {event.launches} ready"
    units = [one.unit for one in batch.launches] if batch else ["items"]
    if len(set(units)) == 1:
        rates = f"{', '.join(f'{rate:,.1f}' for rate in event.items_per_s)} {units[0]}/s"
    else:
        rates = ", ".join(f"{rate:,.1f} {unit}/s" for rate, unit in zip(event.items_per_s, units, strict=True))
    return f"{event.working_s:.0f} s, {rates}"


def _launch(event: LaunchEnds, batch: BatchBegins | None) -> str:
    """Its job id, with its name where that is not the batch's."""
    other = batch is not None and event.label != batch.label
    return f"J{event.job_id} {name_of(event.label)}" if other else f"J{event.job_id}"


def result(event: LaunchEnds) -> str:
    """The rate of a launch, or why it has none; an interruption is no failure once the batch is measured again."""
    if event.cause == "interrupted":
        return f"interrupted: {event.detail}"
    if event.perf is None:
        return f"FAILED ({event.cause}): {event.detail}"
    return f"{event.perf:,.2f} {event.unit}/s"


def estimate_text(estimated: DataEstimate) -> str:
    """What generation will take: for all datasets together, then for each."""
    efforts = estimated.efforts
    each = "".join(
        f"\n  {effort.name} (scale {effort.scale:g}): {effort.files:,} files, {format_bytes(effort.bytes)}, "
        f"{format_seconds(effort.seconds)}"
        for effort in efforts
    )
    return (
        f"to generate: {counted(len(efforts), 'dataset')}, {format_bytes(sum(effort.bytes for effort in efforts))} "
        f"({format_bytes(estimated.free_bytes)} are free), about "
        f"{format_seconds(sum(effort.seconds for effort in efforts))} on {estimated.processes} cores "
        f"(estimated from their measured speed), plus the time to write them to disk{each}"
    )
