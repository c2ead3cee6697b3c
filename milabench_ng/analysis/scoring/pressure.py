"""Slowdown against pressure: a victim beside one antagonist that presses harder and harder. Pure.

A sensitivity curve in the terms of Bubble-Up (Mars et al., MICRO 2011); the pressure is the share of the time in which
the antagonist works. Its own rate shows what it got.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from milabench_ng.analysis.scoring.neighbours import Slowdown
from milabench_ng.analysis.summary.summary import Pressing
from milabench_ng.model.grouping import grouped


class PressureCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A victim beside an antagonist at several intensities."""

    victim: str
    antagonist: str
    """Its workload."""
    cells: tuple[Slowdown, ...]
    """By rising intensity."""


def pressure_curves(cells: Sequence[Slowdown]) -> tuple[PressureCurve, ...]:
    """The curves with two intensities or more, of cells with one antagonist."""
    single = [cell for cell in cells if len(cell.company) == len(cell.pressing) == 1]
    found = grouped(single, lambda cell: (cell.victim, _only(cell).workload))
    return tuple(
        PressureCurve(victim=victim, antagonist=workload, cells=tuple(sorted(points, key=busy)))
        for (victim, workload), points in found.items()
        if len(set(map(busy, points))) > 1
    )


def busy(cell: Slowdown) -> float:
    """The share of the time in which the antagonist presses, 0 to 1."""
    return _only(cell).busy


def _only(cell: Slowdown) -> Pressing:
    (one,) = cell.pressing.values()
    return one
