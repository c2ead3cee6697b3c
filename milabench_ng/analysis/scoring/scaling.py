"""How a test scales over 1 to N devices, and where more of them do not pay off. Pure.

A knee is called only beyond doubt: a one-sided t test over the repeats of what the next devices add, against half of
what they would add on an ideal machine, adjusted over the steps (Holm 1979). Noise of 4 % alone makes two of five
single runs look as if they had one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from milabench_ng.analysis.scoring.scored import ScoredTest
from milabench_ng.analysis.statistics.effects import holm
from milabench_ng.analysis.statistics.intervals import LEVEL, t_tail
from milabench_ng.analysis.summary.summary import TestSummary, progression_steps
from milabench_ng.model.grouping import gathered
from milabench_ng.model.stats import mean, sample_std

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
    """The first step after which devices do not pay off; None if there is none beyond doubt."""
    doubtful: int | None
    """The first step after which they seem not to pay off, though chance may explain it."""


def scaling_curves(rows: Mapping[str, ScoredTest], tests: Mapping[str, TestSummary]) -> tuple[ScalingCurve, ...]:
    """The curves of all progressions with results for at least two numbers of devices."""
    labels = progression_steps(list(rows))
    curves = gathered((label.rpartition(".")[0], (step, label)) for label, step in labels.items() if rows[label].perf)
    return tuple(_curve(test, sorted(steps), rows, tests) for test, steps in curves.items() if len(steps) > 1)


def _curve(
    test: str, labels: list[tuple[int, str]], rows: Mapping[str, ScoredTest], tests: Mapping[str, TestSummary]
) -> ScalingCurve:
    steps: list[ScalingStep] = []
    for count, label in labels:
        steps.append(_step(count, rows[label].perf or 0.0, tests[label].ranks, steps))
    seeming = [before.devices for before, at in pairwise(steps) if at.added is None or at.added < KNEE]
    certain = _certain(labels, rows)
    return ScalingCurve(
        test=test,
        unit=rows[labels[0][1]].unit,
        steps=tuple(steps),
        knee=next((devices for devices in seeming if devices in certain), None),
        doubtful=next((devices for devices in seeming if devices not in certain), None),
    )


def _certain(labels: list[tuple[int, str]], rows: Mapping[str, ScoredTest]) -> set[int]:
    """The steps after which the next devices add less than half of the first step's rate each, beyond doubt."""
    first = rows[labels[0][1]].repeats
    shortfalls = {}
    for (few, below), (many, above) in pairwise(labels):
        least, most = rows[below].repeats, rows[above].repeats
        shortfalls[few] = [
            many * most[repeat] - few * least[repeat] - KNEE * (many - few) * first[repeat]
            for repeat in first
            if repeat in least and repeat in most
        ]
    adjusted = holm([_p_short(values) for values in shortfalls.values()])
    return {devices for devices, p in zip(shortfalls, adjusted, strict=True) if p < 1 - LEVEL}


def _p_short(values: Sequence[float]) -> float:
    """One-sided: the probability of values this low if their true mean is 0; 1 for fewer than two."""
    if len(values) < 2:
        return 1.0
    error = sample_std(values) / math.sqrt(len(values))
    if error == 0:
        return 0.0 if mean(values) < 0 else 1.0
    return t_tail(-mean(values) / error, len(values) - 1)


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
