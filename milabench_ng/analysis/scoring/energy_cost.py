"""What the work of the score draws, and what that costs. Pure.

The score is a rate, so that the score of a node over its kilowatts is what an hour of this work gives for a kWh.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import msgspec

from milabench_ng.analysis.scoring.score import Score
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.summary import Boundary, TestSummary
from milabench_ng.model.errors import InputError

HOURS_PER_YEAR = 8766
"""365.25 days."""


class EnergyCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a node draws within a boundary, the points that it gives for that, and what it costs."""

    boundary: Boundary
    kilowatts: float
    """Mean over the tests that use all devices, by weight."""
    points_per_kwh: float | None
    """Score of the node over ``kilowatts``; None without a complete score."""
    interval: Interval | None
    """That of the score, scaled: the power is taken as known."""
    tariff: float | None
    """Price of a kWh, in the currency of the price; None if none was given."""

    @property
    def per_hour(self) -> float | None:
        return None if self.tariff is None else self.tariff * self.kilowatts

    @property
    def per_point_year(self) -> float | None:
        """What a year of this work costs, for each point: beside the price of a point."""
        if self.tariff is None or not self.points_per_kwh:
            return None
        return self.tariff * HOURS_PER_YEAR / self.points_per_kwh


def energy_costs(
    rows: Sequence[tuple[TestSummary, float]], devices: int, score: Score | None, tariff: float | None
) -> tuple[EnergyCost, ...]:
    """By boundary, for rows with their weights. Raises InputError for a tariff that is none."""
    if tariff is not None and not (tariff > 0 and math.isfinite(tariff)):
        raise InputError(f"--tariff: expected a number above 0, got {tariff:g}")
    made = []
    for boundary in get_args(Boundary):
        watts = node_watts(rows, devices, boundary)
        if watts:
            complete = score is not None and score.status == "complete"
            points = score.per_node if score is not None and complete else None
            known = score.interval if score is not None and points else None
            made.append(
                EnergyCost(
                    boundary=boundary,
                    kilowatts=watts / 1000,
                    points_per_kwh=points / (watts / 1000) if points else None,
                    interval=known.scaled(points / known.value / (watts / 1000)) if known and points else None,
                    tariff=tariff,
                )
            )
    return tuple(made)


def node_watts(rows: Sequence[tuple[TestSummary, float]], devices: int, boundary: Boundary) -> float | None:
    """Mean power of a node over the tests that use all its devices, by weight; None if that of one is not known."""
    together = [(row, weight) for row, weight in rows if weight and row.train and row.devices == devices]
    known = [(watts, weight) for row, weight in together if (watts := _watts(row, boundary)) is not None]
    if not known or len(known) < len(together):
        return None
    return sum(watts * weight for watts, weight in known) / sum(weight for _, weight in known)


def _watts(row: TestSummary, boundary: Boundary) -> float | None:
    """Of all its devices. Stored results of earlier versions have the power of a GPU only."""
    if boundary == "GPU" and not row.energy:
        return None if row.power_w is None else row.power_w * row.devices
    return next((one.watts for one in row.energy if one.boundary == boundary), None)
