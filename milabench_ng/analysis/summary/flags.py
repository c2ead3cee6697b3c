"""Odd launches. They are named, with the reason if known, and still count. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from milabench_ng.analysis.launch.bottleneck import NAMES, contradicts
from milabench_ng.analysis.launch.host_paces import PACE_UNIT
from milabench_ng.analysis.statistics.slow_repeats import slow_places, usual
from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.summary import LaunchFlag
from milabench_ng.model.grouping import gathered
from milabench_ng.model.stats import median, robust_std
from milabench_ng.records.host_pace import moved

OUTLIER_Z = 3.5
"""From Iglewicz and Hoaglin ("How to detect and handle outliers", 1993)."""
MIN_EFFECT = 0.01
"""A launch closer than this to its device's others is not an outlier, however little they vary."""
_MIN_LAUNCHES = 5
"""Fewest launches of a device for which its usual rate is known."""


def flags(good: Mapping[str, LaunchResult]) -> tuple[LaunchFlag, ...]:
    """The flags of a test's launches, which are given by job id."""
    shapes = [
        LaunchFlag(job_id=job, kind=shape.kind, detail=shape.detail)
        for job, result in good.items()
        for shape in result.shapes
    ]
    return (*shapes, *_bottlenecks(good), *_moved_paces(good), *_outliers(good))


def slow_repeats(repeats: Mapping[str, float]) -> Iterator[LaunchFlag]:
    """The flags of a test's repeats, whose rates are given by name."""
    if min(repeats.values(), default=0.0) <= 0:
        return
    logs = [math.log(rate) for rate in repeats.values()]
    middle = median([logs[place] for place in usual(logs)])
    for place in slow_places(logs):
        found = f"{math.expm1(logs[place] - middle):+.1%} vs. the others"
        detail = f"{found}: intervals are widened to cover the mean with and without it"
        yield LaunchFlag(job_id=list(repeats)[place], kind="slow repeat", detail=detail)


def _bottlenecks(good: Mapping[str, LaunchResult]) -> Iterator[LaunchFlag]:
    """Launches whose pace something else set than their workload declares."""
    for job, result in good.items():
        if result.bottleneck is not None and contradicts(result.work.bound, result.bottleneck):
            load, waits = (round(100 * (share or 0.0)) for share in (result.gpu_load, result.wait_share))
            detail = (
                f"declared {result.work.bound}, but {NAMES[result.bottleneck]} set the pace: the GPU was busy for "
                f"{load}% of the window, and {waits}% of it was spent waiting for data"
            )
            yield LaunchFlag(job_id=job, kind="bottleneck", detail=detail)


def _moved_paces(good: Mapping[str, LaunchResult]) -> Iterator[LaunchFlag]:
    """Launches whose cores were faster or slower after their batch than before it."""
    for job, result in good.items():
        for each in result.paces:
            change = moved(each.before, each.after)
            if change is not None:
                edges = (
                    f"{each.before.mb_per_s:.1f} {PACE_UNIT} before the launch group, {each.after.mb_per_s:.1f} after"
                )
                yield LaunchFlag(job_id=job, kind="host pace", detail=f"device {each.device}: {change:+.1%}, {edges}")


def _outliers(good: Mapping[str, LaunchResult]) -> list[LaunchFlag]:
    """Launches far from their device's median, relative to the spread of all launches about their medians."""
    perfs = gathered((result.devices, math.log(result.perf)) for result in good.values() if result.perf > 0)
    usual = {devices: median(logs) for devices, logs in perfs.items() if len(logs) >= _MIN_LAUNCHES}
    away = {
        job: math.log(result.perf) - usual[result.devices]
        for job, result in good.items()
        if result.perf > 0 and result.devices in usual
    }
    if not away:
        return []
    limit = max(MIN_EFFECT, OUTLIER_Z * small_sample(len(away), len(usual)) * robust_std(list(away.values())))
    typical_wait = median([result.wait_share or 0.0 for result in good.values()])
    return [
        LaunchFlag(
            job_id=job,
            kind="outlier",
            detail=f"{math.expm1(distance):+.1%} vs. its device's median; {_reason(good[job], typical_wait)}",
        )
        for job, distance in away.items()
        if abs(distance) > limit
    ]


def small_sample(launches: int, devices: int) -> float:
    """How much a robust standard deviation is too small once each device's own median has been subtracted.

    Found by simulation (``scripts/simulate-decisions``): with this correction, 0.1 to 0.6 % of normal launches are
    called outliers.
    """
    return 1 + 1.2 * devices / launches + 4 / launches


def _reason(result: LaunchResult, typical_wait: float) -> str:
    """Possible explanations in the record."""
    known = [mark.text for mark in result.marks]
    if result.wait_share is not None and result.wait_share > typical_wait + 0.05:
        known.append(f"waited for data {result.wait_share:.0%} of the time, usually {typical_wait:.0%}")
    known += [shape.detail for shape in result.shapes]
    return "; ".join(known) or "the record shows no reason"
