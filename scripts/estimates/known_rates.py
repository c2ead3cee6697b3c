"""Rates of the same computation on several devices: published ones, and those of the shipped baselines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from estimates.carrying import KnownPair
from estimates.known_peaks import distance, known_peak
from milabench_ng.analysis.baselines.peaks import Arithmetic, arithmetic_of
from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import convert_json, parse_json, read_content
from milabench_ng.model.shipped import find

GPU_BOUND = ("gpu-compute", "gpu-memory")

OWN = ("h200", "v100", "rtx8000")
"""The shipped, non-estimated baselines of devices with known peaks."""

KnownRate = Annotated[float, msgspec.Meta(gt=0)]


class Computation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A computation that several devices ran."""

    workload: str
    name: str
    """The workload in a given precision, as named by its study."""
    arithmetic: Arithmetic
    rates: dict[str, KnownRate]
    """Rates by device, in items per second of whatever the study counts."""


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who measured, with what, and how the figures were taken from there."""

    source: str
    note: str
    computations: tuple[Computation, ...]


def known_pairs() -> tuple[KnownPair, ...]:
    """All shipped pairs."""
    own = own_rates([load_baseline(name) for name in OWN])
    return tuple(pair for name, study in {**published(), "mnb": own}.items() for pair in pairs_of(name, study))


def published() -> dict[str, Study]:
    """The shipped third-party figures, by study."""
    path = find("baselines/rates", "published")
    if path is None:
        raise InputError("baselines/rates/published.json does not come with this installation; install it again")
    return convert_json(parse_json(read_content(path), str(path)), dict[str, Study], str(path))


def own_rates(baselines: Sequence[Summary]) -> Study:
    """The baselines' GPU-bound rows, if they are of the same work."""
    rates: dict[tuple[str, Arithmetic], dict[str, float]] = {}
    for baseline in baselines:
        device = device_of(baseline)
        for label, row in baseline.tests.items():
            rate = _classic_rate(row, baseline)
            work, same = row.work, not any(each.decides for each in row.departures)
            if rate and same and not work.scheme.spreads and work.bound in GPU_BOUND and work.precision:
                rates.setdefault((label, arithmetic_of(work.precision[0])), {})[device] = rate
    return Study(
        source="the shipped baselines",
        note="rows that the GPU bounds, in items of 2020",
        computations=tuple(
            Computation(workload=label, name=label, arithmetic=kind, rates=by_device)
            for (label, kind), by_device in rates.items()
        ),
    )


def device_of(baseline: Summary) -> str:
    """The device's name, without the count before it."""
    return baseline.provenance.hardware.partition(" x ")[2]


def pairs_of(name: str, study: Study) -> Iterator[KnownPair]:
    """All pairs of devices of different architectures: within one, devices are closer to each other than the rule."""
    for one in study.computations:
        devices = {device: known_peak(device, f"{name}: {one.name}") for device in one.rates}
        for first, second in itertools.combinations(devices, 2):
            step = distance(devices[first], devices[second], one.arithmetic)
            if step is not None and devices[first].architecture != devices[second].architecture:
                yield KnownPair(
                    study=name,
                    workload=one.workload,
                    computation=one.name,
                    arithmetic=one.arithmetic,
                    devices=(devices[first].name, devices[second].name),
                    peaks=step,
                    rates=math.log(one.rates[second] / one.rates[first]),
                )


def _classic_rate(row: TestSummary, baseline: Summary) -> float | None:
    """The rate of a measured or published row, in items of 2020 per second."""
    if row.train is None or row.failures:
        return None
    return row.train.mean * (1.0 if baseline.units == "classic" else row.work.classic_factor or 0.0)
