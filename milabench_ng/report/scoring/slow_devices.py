"""Compares the devices of a node, and finds those that are slower than they should be. Pure.

A fixed distance from the best device would call many healthy ones slow: of 64 that differ by 2 %, one is almost always
5 % below the best. Each device is therefore compared with the others: the logarithm of its rate with their median, in
units of their robust standard deviation, neither of which includes it; and only an effect that matters counts.
Differences of a few percent between like GPUs are normal (Sinha et al., SC 2022, arXiv:2208.11035). Only devices of the
same model are compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.grouping import grouped
from milabench_ng.report.summary.summary import Summary, TestSummary
from milabench_ng.stats import median, robust_std

STRAGGLER_Z = 3.5
STRAGGLER_EFFECT = 0.03
_QUIETEST = 0.005
"""The smallest spread assumed among devices; with two of them nothing better is known."""

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
    """Difference from the median of the others; below 0."""
    z: float


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
    """Slow by the median over the tests: these devices should be inspected."""

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
    found = [_slow(tests, group) for group in groups]
    return GpuComparison(
        devices=devices,
        models=tuple(summary.models.get(device, "not recorded") for device in devices) if len(groups) > 1 else (),
        mean=tuple(_row(label, row, devices, "mean") for label, row in tests.items()),
        min=tuple(_row(label, row, devices, "min") for label, row in tests.items()),
        max=tuple(_row(label, row, devices, "max") for label, row in tests.items()),
        stragglers=tuple(slow for single, _ in found for slow in single),
        overall=tuple(slow for _, overall in found for slow in overall),
    )


def _alike(devices: Sequence[str], models: Mapping[str, str]) -> list[list[str]]:
    """The devices by model."""
    return list(grouped(devices, lambda device: models.get(device, "")).values())


def _slow(tests: Mapping[str, TestSummary], alike: Sequence[str]) -> tuple[list[Straggler], tuple[Straggler, ...]]:
    """The devices slower than others of the same model, in single tests and overall."""
    logs = {label: known for label, row in tests.items() if (known := _relative_logs(row, alike))}
    by_device = {
        device: median([values[device] for values in logs.values() if device in values])
        for device in alike
        if any(device in values for values in logs.values())
    }
    single = [slow for label, values in logs.items() for slow in stragglers(values, label, _noise(tests[label]))]
    return single, stragglers(by_device, None)


def _row(label: str, row: TestSummary, devices: tuple[str, ...], measure: Measure) -> GpuRow:
    rates = {device: float(getattr(stat, measure)) for device, stat in (row.pergpu or {}).items()}
    best = max(rates.values())
    relative = (rates[device] / best if device in rates and best > 0 else None for device in devices)
    return GpuRow(test=label, relative=tuple(relative))


def _relative_logs(row: TestSummary, alike: Sequence[str]) -> dict[str, float]:
    """Logarithms of the devices' mean rates, relative to their median."""
    pergpu = row.pergpu or {}
    logs = {device: math.log(stat.mean) for device, stat in pergpu.items() if device in alike and stat.mean > 0}
    centre = median(list(logs.values())) if logs else 0.0
    return {device: value - centre for device, value in logs.items()}


def _noise(row: TestSummary) -> float:
    """The median standard error of a device's mean, from its repeats; 0 if no device has two."""
    stats = [stat for stat in (row.pergpu or {}).values() if stat.n > 1 and stat.mean > 0]
    errors = [stat.std / stat.mean / math.sqrt(stat.n - 1) for stat in stats]  # std has the divisor n
    return median(errors) if errors else 0.0


def stragglers(logs: Mapping[str, float], test: str | None, noise: float = 0.0) -> tuple[Straggler, ...]:
    """The devices slower than the others by more than chance and more than 3 %.

    ``noise``: the relative uncertainty of a device's mean; for a test, from its repeats.
    """
    found = []
    for device, value in logs.items():
        others = [other for name, other in logs.items() if name != device]
        if not others:
            continue
        away = value - median(others)
        z = away / max(robust_std(others), noise, _QUIETEST)
        if z < -STRAGGLER_Z and math.expm1(away) < -STRAGGLER_EFFECT:
            found.append(Straggler(device=device, test=test, effect_pct=100 * math.expm1(away), z=z))
    return tuple(found)
