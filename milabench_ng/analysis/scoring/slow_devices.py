"""Compares the devices of a node, and finds those that are slower than they should be. Pure.

A fixed distance from the best device would call many healthy ones slow: of 64 that differ by 2 %, one is almost always
5 % below the best. Each device is therefore compared with the mean of the others of its model. The launches of a repeat
share the node's state, so what a repeat does to all devices is taken out first: the logarithm of a rate is the sum of a
device's mean, a repeat's mean and a residual (a two-way layout without interaction: Scheffe, The Analysis of Variance,
1959). The residuals give the noise, and a device is slow if it lies more than 3 % below the others beyond doubt: a
one-sided t test at the margin, adjusted over all devices and tests (Holm 1979). Smaller differences between like GPUs
are normal (Sinha et al., SC 2022, arXiv:2208.11035).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Literal

import msgspec

from milabench_ng.analysis.statistics.effects import holm
from milabench_ng.analysis.statistics.intervals import LEVEL, t_quantile, t_tail
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.grouping import grouped
from milabench_ng.stats import mean

SLOWER_BY = 0.03
"""How far below the others a device may be without being called slow."""

SOUGHT = 0.05
"""How much slower a device is of which a report says how likely it would be noticed."""

Measure = Literal["mean", "min", "max"]
MEASURES: tuple[Measure, ...] = ("mean", "min", "max")


class GpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """One test: each device's rate relative to the best device's, 0 to 1; None if it has no result."""

    test: str
    relative: tuple[float | None, ...]


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A device that is slower than the others."""

    device: str
    test: str | None
    """None means over all tests."""
    effect_pct: float
    """Difference from the geometric mean of the others; below 0."""
    p: float
    """The probability of so slow a device if it is at most 3 % slower; adjusted over all devices and tests."""


class GpuComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Three matrices of tests by devices, and the slow devices."""

    devices: tuple[str, ...]
    models: tuple[str, ...]
    """The model of each device; empty if all are the same or it is not recorded."""
    mean: tuple[GpuRow, ...]
    min: tuple[GpuRow, ...]
    max: tuple[GpuRow, ...]
    stragglers: tuple[Straggler, ...]
    overall: tuple[Straggler, ...]
    """Slow by the mean over the tests: these devices should be inspected."""
    noticed: float | None = None
    """How likely a device that is 5 % slower in all tests is called slow over all tests, 0 to 1; that of the device of
    which it is least likely. None if no device is compared over all tests."""
    judged: bool
    """Whether any test was repeated on devices of one model: without repeats, nobody can tell which are slow."""

    @property
    def alone(self) -> tuple[str, ...]:
        """The only devices of their model: whether they are slow is unknown."""
        return tuple(
            device for device, model in zip(self.devices, self.models, strict=False) if self.models.count(model) == 1
        )

    def rows(self, measure: Measure) -> tuple[GpuRow, ...]:
        """One of the matrices."""
        return {"mean": self.mean, "min": self.min, "max": self.max}[measure]


def side_by_side(summary: Summary) -> GpuComparison | None:
    """Compare devices over the tests with one device per launch; None if fewer than two devices have results.

    A test with results for only one device (``scaling.1``) compares nothing, so it is left out.
    """
    tests = {label: row for label, row in summary.tests.items() if len(row.pergpu or {}) > 1}
    names = {device for row in tests.values() for device in row.pergpu or {}}
    devices = tuple(sorted(names, key=lambda name: (int(name) if name.isdigit() else math.inf, name)))
    if len(devices) < 2:
        return None
    groups = _alike(devices, summary.models)
    gaps = [gap for group in groups for gap in _gaps(tests, group)]
    slow = slow_among(gaps)
    return GpuComparison(
        devices=devices,
        models=tuple(_model(device, summary.models) or "not recorded" for device in devices) if len(groups) > 1 else (),
        mean=tuple(_row(label, row, devices, "mean") for label, row in tests.items()),
        min=tuple(_row(label, row, devices, "min") for label, row in tests.items()),
        max=tuple(_row(label, row, devices, "max") for label, row in tests.items()),
        stragglers=tuple(one for one in slow if one.test is not None),
        overall=tuple(one for one in slow if one.test is None),
        noticed=noticed_of(gaps),
        judged=bool(gaps),
    )


def _alike(devices: Sequence[str], models: Mapping[str, str]) -> list[list[str]]:
    """The devices by model."""
    return list(grouped(devices, lambda device: _model(device, models)).values())


def _model(slot: str, models: Mapping[str, str]) -> str:
    """The model of a slot's device; empty if not recorded."""
    return models.get(slot.rstrip(ascii_lowercase), "")


class DeviceGap(msgspec.Struct, frozen=True, kw_only=True):
    """How far a device is from the others, in logarithms."""

    device: str
    test: str | None
    """None means over all tests."""
    mean: float
    error: float
    df: int

    @property
    def p(self) -> float:
        """One-sided: the probability of a gap this wide if the device is just 3 % slower."""
        beyond = math.log1p(-SLOWER_BY) - self.mean
        if self.error == 0:
            return 0.0 if beyond > 0 else 1.0
        return t_tail(beyond / self.error, self.df)


Matrix = Mapping[str, Mapping[str, float]]
"""Logarithms of rates, by repeat and device; every repeat has the same devices."""


def _gaps(tests: Mapping[str, TestSummary], alike: Sequence[str]) -> list[DeviceGap]:
    """The gap of every device of one model, in each test and over the tests that all of them have."""
    matrices = {label: made for label, row in tests.items() if (made := log_matrix(row, alike))}
    single = [gap for label, made in matrices.items() for gap in device_gaps(made, label)]
    whole = [made for made in matrices.values() if len(_devices(made)) == len(alike)]
    return single + device_gaps(over_tests(whole), None)


def log_matrix(row: TestSummary, alike: Sequence[str]) -> Matrix:
    """The logarithms of a test's rates on the devices in ``alike`` that have any, in the repeats of all of these."""
    found: dict[str, dict[str, float]] = {}
    for job, rate in row.launches.items():
        repeat, _, slot = job.partition(".")
        device, _, again = slot.partition("#")
        if device in alike and rate > 0:
            found.setdefault(f"{repeat}#{again}", {})[device] = math.log(rate)
    devices = {device for logs in found.values() for device in logs}
    return {repeat: logs for repeat, logs in found.items() if logs.keys() == devices}


def over_tests(matrices: Sequence[Matrix]) -> Matrix:
    """The mean of the tests, in the repeats that all of them have."""
    common = [repeat for repeat in (matrices[0] if matrices else ()) if all(repeat in made for made in matrices)]
    return {
        repeat: {device: mean([made[repeat][device] for made in matrices]) for device in matrices[0][repeat]}
        for repeat in common
    }


def _devices(matrix: Matrix) -> list[str]:
    return list(next(iter(matrix.values()), ()))


def device_gaps(matrix: Matrix, test: str | None) -> list[DeviceGap]:
    """Each device against the mean of the others; empty for one repeat or one device.

    With D devices and R repeats the residuals have ``(D - 1)(R - 1)`` degrees of freedom.
    """
    devices = _devices(matrix)
    if len(matrix) < 2 or len(devices) < 2:
        return []
    by_device = {device: mean([logs[device] for logs in matrix.values()]) for device in devices}
    centre = mean(list(by_device.values()))
    residuals = [
        logs[device] - by_device[device] - mean(list(logs.values())) + centre
        for logs in matrix.values()
        for device in devices
    ]
    df, others = (len(devices) - 1) * (len(matrix) - 1), len(devices) - 1
    noise = math.fsum(residual * residual for residual in residuals) / df
    error = math.sqrt(noise / len(matrix) * (1 + 1 / others))
    return [
        DeviceGap(device=device, test=test, mean=(value - centre) * len(devices) / others, error=error, df=df)
        for device, value in by_device.items()
    ]


def slow_among(gaps: Sequence[DeviceGap]) -> list[Straggler]:
    """The devices that are slower beyond doubt."""
    adjusted = holm([gap.p for gap in gaps])
    return [
        Straggler(device=gap.device, test=gap.test, effect_pct=100 * math.expm1(gap.mean), p=p)
        for gap, p in zip(gaps, adjusted, strict=True)
        if p < 1 - LEVEL
    ]


def noticed_of(gaps: Sequence[DeviceGap]) -> float | None:
    """The probability that a device that is `SOUGHT` slower is called so over all tests; single tests may call it, too.

    Of the noncentral t distribution (Johnson and Welch, Biometrika 31, 1940), at Holm's strictest step.
    """
    whole = [gap for gap in gaps if gap.test is None]
    if not whole:
        return None
    strict = 1 - (1 - LEVEL) / len(gaps)
    beyond = math.log1p(-SLOWER_BY) - math.log1p(-SOUGHT)
    return min(
        t_tail(t_quantile(strict, gap.df), gap.df, beyond / gap.error) if gap.error else float(beyond > 0)
        for gap in whole
    )


def _row(label: str, row: TestSummary, devices: tuple[str, ...], measure: Measure) -> GpuRow:
    rates = {device: float(getattr(stat, measure)) for device, stat in (row.pergpu or {}).items()}
    best = max(rates.values())
    relative = (rates[device] / best if device in rates and best > 0 else None for device in devices)
    return GpuRow(test=label, relative=tuple(relative))
