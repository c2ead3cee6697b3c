"""The curves of tests that differ in one option, such as a GPU's tokens per second against those of a user. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.scoring.rate_curves import RateCurve
from milabench_ng.model.grouping import grouped
from milabench_ng.present.html.figures import (
    FEWEST_POINTS,
    Chart,
    Label,
    Part,
    line_key,
    marked_line,
    numbers,
    plot,
    style,
)
from milabench_ng.present.render.cells import figure
from milabench_ng.report.report import Report


def rate_curve_charts(report: Report) -> Iterator[Chart]:
    """A chart for all curves of the same units, of those that have enough points."""
    curves = [curve for curve in report.rate_curves if len(curve.points) >= FEWEST_POINTS]
    for (unit, against, over), alike in grouped(curves, lambda curve: (curve.unit, curve.against, curve.over)).items():
        yield Chart(
            key=f"curve-{over}",
            title=f"{unit}/s per device against {against}",
            reading=f"Each point is a test, with its {over}. Up and to the right is better: more work of a device, and "
            "more for each of those that share it.",
            views=(
                plot(
                    numbers((p.against for one in alike for p in one.points), against, from_zero=True),
                    numbers((p.perf for one in alike for p in one.points), f"{unit}/s per device", from_zero=True),
                    (part for index, one in enumerate(alike) for part in _parts(one, index)),
                    keys=(line_key(one.name, style(index)) for index, one in enumerate(alike)),
                ),
            ),
        )


def _parts(curve: RateCurve, index: int) -> Iterator[Part]:
    points = [(point.against, point.perf) for point in curve.points]
    titles = [
        f"{curve.over} {point.at}: {figure(point.perf)} {curve.unit}/s, {figure(point.against)} {curve.against}"
        for point in curve.points
    ]
    yield from marked_line(points, titles, style(index), curve.name)
    for at, point in zip(points, curve.points, strict=True):
        yield Label(at=at, text=str(point.at), anchor="start", shift=(7, -7), quiet=True)
