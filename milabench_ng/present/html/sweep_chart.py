"""What tests measure of all that a step goes through, such as bandwidth over the size of a message. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.model.grouping import grouped
from milabench_ng.present.html.figures import (
    Axis,
    Chart,
    Tick,
    line_key,
    logarithmic,
    marked_line,
    numbers,
    plot,
    style,
)
from milabench_ng.present.render.cells import figure, place_told
from milabench_ng.report.report import Report

_MOST_LABELS = 6
_WIDE = 100.0
"""A unit whose values differ by more has a logarithmic axis, if none of them is 0."""
Line = tuple[str, list[tuple[float, float]]]
"""A test, and its points."""


def sweep_charts(report: Report) -> Iterator[Chart]:
    """A chart for each unit, in which each test is a line."""
    found = [
        (sweep.over, unit, (name_of_row(line.scored.test), points))
        for line in report.lines
        for sweep in line.sweeps
        for unit in sweep.units
        if (points := [(point.at, point.values[unit]) for point in sweep.points if unit in point.values])
    ]
    for (over, unit), alike in grouped(found, lambda one: one[:2]).items():
        yield _chart(over, unit, [line for _, _, line in alike])


def _chart(over: str, unit: str, lines: Sequence[Line]) -> Chart:
    places = sorted({at for _, points in lines for at, _ in points})
    values = [value for _, points in lines for _, value in points]
    wide = 0 < min(values) < max(values) / _WIDE
    return Chart(
        key=f"sweep-{over}-{unit}",
        title=f"{unit} over {over}",
        reading=f"Each line is a test, each point what it measured at one number of {over}.",
        views=(
            plot(
                _over(places, over),
                logarithmic(values, unit) if wide else numbers(values, unit, from_zero=True),
                (
                    part
                    for index, (name, points) in enumerate(lines)
                    for part in marked_line(
                        points,
                        [f"{place_told(at, over)}: {figure(value)} {unit}" for at, value in points],
                        style(index),
                        name,
                    )
                ),
                keys=(line_key(name, style(index)) for index, (name, _) in enumerate(lines)),
            ),
        ),
    )


def _over(places: Sequence[float], over: str) -> Axis:
    """A logarithmic axis with labels at some of the places."""
    every = -(-len(places) // _MOST_LABELS)
    ticks = tuple(Tick(at, place_told(at, over)) for at in places[::every])
    return msgspec.structs.replace(logarithmic(places, over), ticks=ticks)
