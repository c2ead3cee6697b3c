"""What a report shows of a folder beyond its summary: courses, enforced shares, telemetry, ``run.json``.

This reads the records a second time, and only the HTML report does so; the summary needs none of it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.files import LARGE, parse_json, read_content
from milabench_ng.plain import short
from milabench_ng.records.isolation import Effective, GroupEvents, Share, Tier, Usage
from milabench_ng.records.reading import ReadRecord, decode_record, read_folder, read_record
from milabench_ng.records.views import ManifestView
from milabench_ng.report.launch.load_course import LoadCourse, load_courses
from milabench_ng.report.launch.timeline import Course, courses
from milabench_ng.report.layouts.data_loading import EPOCH, SUITE


class FenceEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The fence around one tenant according to its record; None for what is not recorded."""

    backend: str
    tier: Tier
    requested: Share | None = None
    effective: Effective | None = None
    effective_end: Effective | None = None
    disjoint: bool | None = None
    usage: Usage | None = None
    events_before: GroupEvents | None = None
    events_after: GroupEvents | None = None
    notes: tuple[str, ...] = ()


class Reading(msgspec.Struct, frozen=True):
    """Samples of one quantity while a launch worked."""

    min: float
    mean: float
    max: float


class _Mnb(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    isolation: dict[str, FenceEvidence] = {}
    telemetry: dict[str, dict[str, Reading]] = {}


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    hostname: str = ""
    mnb: _Mnb | None = None


class SampledQuantity(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of one source over all launches of a test."""

    label: str
    source: str
    quantity: str
    launches: int
    min: float
    mean: float
    """The mean of the launches' means."""
    max: float
    counter: bool
    """Whether the three values describe what each launch added to a counter."""


class FolderDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a folder, in file order."""

    hosts: tuple[str, ...]
    courses: tuple[Course, ...]
    loads: tuple[LoadCourse, ...] = ()
    fences: dict[str, tuple[FenceEvidence, ...]]
    """By device."""
    sampled: tuple[SampledQuantity, ...]
    manifests: tuple[dict[str, Any], ...]
    """Every ``run.json``, unchanged."""
    unread: tuple[str, ...]
    """Records with unreadable evidence."""


_decoder = msgspec.json.Decoder(_Record)


def read_evidence(folder: Path) -> FolderDetails:
    """Read the details of a result folder. The summary reports records that cannot be read at all."""
    hosts: dict[str, None] = {}
    found: list[Course] = []
    loads: list[LoadCourse] = []
    fences: dict[str, list[FenceEvidence]] = defaultdict(list)
    readings: dict[tuple[str, str, str], list[Reading]] = defaultdict(list)
    unread = []
    for read in read_folder(folder):
        if not isinstance(read, ReadRecord) or read.view.mnb is None:
            continue
        measured = read.view.mnb.launch.measured
        if measured:
            found += courses(read)
            if read.view.mnb.label.startswith(f"{SUITE}."):
                loads += load_courses(read, EPOCH)
        try:
            record = decode_record(read_content(folder / read.file, LARGE, os.O_NOFOLLOW), read.file, _decoder)
        except (InputError, msgspec.MsgspecError) as error:
            unread.append(f"{read.file}: {short(error)}")
            continue
        hosts.setdefault(record.hostname)
        if record.mnb is None:
            continue
        for device, fence in record.mnb.isolation.items():
            fences[device].append(fence)
        for source, quantities in record.mnb.telemetry.items() if measured else ():
            for quantity, reading in quantities.items():
                readings[record.mnb.label, source, quantity].append(reading)
    return FolderDetails(
        hosts=tuple(hosts),
        courses=tuple(found),
        loads=tuple(loads),
        fences={device: tuple(fences[device]) for device in sorted(fences)},
        sampled=tuple(_sampled(*key, values) for key, values in readings.items()),
        manifests=tuple(_manifests(folder)),
        unread=tuple(unread),
    )


def is_counter(quantity: str) -> bool:
    """Whether it is a counter (joules, seconds) since the driver loaded or the group was created; others are levels."""
    return quantity.endswith(("_j", "_s")) and not quantity.endswith("_per_s")


def _sampled(label: str, source: str, quantity: str, readings: list[Reading]) -> SampledQuantity:
    counter = is_counter(quantity)
    values = [Reading(*[at.max - at.min] * 3) for at in readings] if counter else readings
    return SampledQuantity(
        label=label,
        source=source,
        quantity=quantity,
        launches=len(values),
        min=min(value.min for value in values),
        mean=sum(value.mean for value in values) / len(values),
        max=max(value.max for value in values),
        counter=counter,
    )


def _manifests(folder: Path) -> Iterator[dict[str, Any]]:
    """Every valid ``run.json``; the summary names the invalid ones."""
    for path in sorted(folder.rglob("run.json")):
        try:
            content = read_content(path, LARGE, os.O_NOFOLLOW)
            if isinstance(read_record(content, path.name), ManifestView):
                yield parse_json(content, str(path))
        except InputError:
            continue
