"""What only a page shows of a folder: courses, enforced shares, telemetry, manifests. Pure."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from milabench_ng.analysis.launch.load_course import LoadCourse, load_courses
from milabench_ng.analysis.launch.timeline import Course, courses
from milabench_ng.model.bounds import Spread
from milabench_ng.model.stats import mean
from milabench_ng.present.layouts.data_loading import EPOCH, SUITE
from milabench_ng.records.folder import Folder
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.reading import ReadRecord
from milabench_ng.telemetry.messages import is_counter


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
    """The details of a folder, in file order; a stored summary has none."""

    hosts: tuple[str, ...] = ()
    courses: tuple[Course, ...] = ()
    loads: tuple[LoadCourse, ...] = ()
    fences: dict[str, tuple[Isolation, ...]] = {}
    """By device."""
    sampled: tuple[SampledQuantity, ...] = ()
    manifests: tuple[Manifest, ...] = ()


def details_of(folder: Folder) -> FolderDetails:
    """The details of a result folder. The summary reports records that cannot be read at all."""
    hosts: dict[str, None] = {}
    found: list[Course] = []
    loads: list[LoadCourse] = []
    fences: dict[str, list[Isolation]] = defaultdict(list)
    readings: dict[tuple[str, str, str], list[Spread]] = defaultdict(list)
    for read in folder.records:
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
        manifests=tuple(read.manifest for read in folder.manifests),
    )


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
