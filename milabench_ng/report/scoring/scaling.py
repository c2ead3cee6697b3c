"""How a test scales over 1 to N devices. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec

from milabench_ng.report.scoring.scored import ScoredTest
from milabench_ng.report.summary.summary import TestSummary, progression_steps
from milabench_ng.stats import mean

KNEE = 0.5
"""The knee is the number of devices beyond which another one adds less than this share of a single device's rate."""

SLOWER_PCT = 0.05
"""A rank less than this below the ranks' mean is not called slower; it would be printed as 0.0 %."""


class ScalingStep(msgspec.Struct, frozen=True, kw_only=True):
    """K devices together. Rates are in items per second."""

    devices: int
    per_device: float
    aggregate: float
    efficiency: float | None
    """``per_device`` relative to that of the smallest step: 1 on an ideal machine."""
    added: float | None
    """What each device added since the previous step contributes, relative to a device's rate in the smallest step."""
    slowest: str | None
    """The device whose rank was slowest on average; None if ranks are not recorded or none is 0.05 % below the mean:
    ranks that wait for each other in every step have the same rate."""
    slowest_pct: float | None
    """Its rate relative to the ranks' mean, in percent, below 0."""


class ScalingCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A test over increasing numbers of devices."""

    test: str
    unit: str
    steps: tuple[ScalingStep, ...]
    knee: int | None
    """None if every device pays off, up to the largest number."""


def scaling_curves(rows: Mapping[str, ScoredTest], tests: Mapping[str, TestSummary]) -> tuple[ScalingCurve, ...]:
    """The curves of all progressions with results for at least two numbers of devices."""
    labels = progression_steps(list(rows))
    curves: dict[str, list[tuple[int, str]]] = {}
    for label, step in labels.items():
        if rows[label].perf:
            curves.setdefault(label.rpartition(".")[0], []).append((step, label))
    return tuple(_curve(test, sorted(steps), rows, tests) for test, steps in curves.items() if len(steps) > 1)


def _curve(
    test: str, labels: list[tuple[int, str]], rows: Mapping[str, ScoredTest], tests: Mapping[str, TestSummary]
) -> ScalingCurve:
    steps: list[ScalingStep] = []
    for count, label in labels:
        steps.append(_step(count, rows[label].perf or 0.0, tests[label].ranks, steps))
    knees = [before.devices for before, at in pairwise(steps) if at.added is None or at.added < KNEE]
    return ScalingCurve(test=test, unit=rows[labels[0][1]].unit, steps=tuple(steps), knee=knees[0] if knees else None)


def _step(count: int, per_device: float, ranks: Mapping[str, float], before: list[ScalingStep]) -> ScalingStep:
    behind = {device: 100 * (rate / mean(list(ranks.values())) - 1) for device, rate in ranks.items()}
    slowest = min(behind, key=behind.__getitem__) if behind and min(behind.values()) <= -SLOWER_PCT else None
    first = before[0].per_device if before else None
    last = before[-1] if before else None
    aggregate = count * per_device
    return ScalingStep(
        devices=count,
        per_device=per_device,
        aggregate=aggregate,
        efficiency=per_device / first if first else 1.0,
        added=(aggregate - last.aggregate) / (count - last.devices) / first if last and first else None,
        slowest=slowest,
        slowest_pct=None if slowest is None else behind[slowest],
    )
