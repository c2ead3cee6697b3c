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

from milabench_ng.bounds import Spread
from milabench_ng.errors import InputError
from milabench_ng.files import LARGE, parse_json, read_content
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.reading import ReadRecord, read_folder, read_record
from milabench_ng.report.launch.load_course import LoadCourse, load_courses
from milabench_ng.report.launch.timeline import Course, courses
from milabench_ng.report.layouts.data_loading import EPOCH, SUITE
from milabench_ng.stats import mean


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
    fences: dict[str, tuple[Isolation, ...]]
    """By device."""
    sampled: tuple[SampledQuantity, ...]
    manifests: tuple[dict[str, Any], ...]
    """Every ``run.json``, unchanged."""


def read_evidence(folder: Path) -> FolderDetails:
    """Read the details of a result folder. The summary reports records that cannot be read at all."""
    hosts: dict[str, None] = {}
    found: list[Course] = []
    loads: list[LoadCourse] = []
    fences: dict[str, list[Isolation]] = defaultdict(list)
    readings: dict[tuple[str, str, str], list[Spread]] = defaultdict(list)
    for read in read_folder(folder):
        if not isinstance(read, ReadRecord):
            continue
        mnb = read.record.mnb
        measured = mnb.launch.measured
        if measured:
            found += courses(read)
            if mnb.label.startswith(f"{SUITE}."):
                loads += load_courses(read, EPOCH)
        hosts.setdefault(read.record.hostname)
        for device, fence in mnb.isolation.items():
            fences[device].append(fence)
        for source, quantities in mnb.telemetry.items() if measured else ():
            for quantity, reading in quantities.items():
                readings[mnb.label, source, quantity].append(reading)
    return FolderDetails(
        hosts=tuple(hosts),
        courses=tuple(found),
        loads=tuple(loads),
        fences={device: tuple(fences[device]) for device in sorted(fences)},
        sampled=tuple(_sampled(*key, values) for key, values in readings.items()),
        manifests=tuple(_manifests(folder)),
    )


def is_counter(quantity: str) -> bool:
    """Whether it is a counter (joules, seconds) since the driver loaded or the group was created; others are levels."""
    return quantity.endswith(("_j", "_s")) and not quantity.endswith("_per_s")


def _sampled(label: str, source: str, quantity: str, readings: list[Spread]) -> SampledQuantity:
    counter = is_counter(quantity)
    values = [(at.max - at.min,) * 3 if counter else (at.min, at.mean, at.max) for at in readings]
    least, means, most = zip(*values, strict=True)
    return SampledQuantity(
        label=label,
        source=source,
        quantity=quantity,
        launches=len(values),
        min=min(least),
        mean=mean(means),
        max=max(most),
        counter=counter,
    )


def _manifests(folder: Path) -> Iterator[dict[str, Any]]:
    """Every valid ``run.json``; the summary names the invalid ones."""
    for path in sorted(folder.rglob("run.json")):
        try:
            content = read_content(path, LARGE, os.O_NOFOLLOW)
            if isinstance(read_record(content, path.name), Manifest):
                yield parse_json(content, str(path))
        except InputError:
            continue
