"""The curves of pressure: how much slower a victim is, the harder its neighbour presses. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.scoring.pressure import PressureCurve, busy, pressure_curves
from milabench_ng.present.html.figures import FEWEST_POINTS, Chart, PlotTrace, View, layout, line, style, whiskers
from milabench_ng.report.report import Report


def pressure_charts(report: Report) -> Iterator[Chart]:
    """The curves that have enough points beside that of no pressure."""
    curves = [curve for curve in pressure_curves(report.neighbours) if len(curve.cells) >= FEWEST_POINTS - 1]
    if curves:
        yield Chart(
            key="pressure",
            title="slowdown against pressure",
            reading="How many times as long a victim takes beside an antagonist that presses for a part of the time "
            "(its option busy), with 95 % intervals. A curve that is flat to the left and steep to the right says how "
            "much of a neighbour can be borne.",
            views=(
                View(
                    data=tuple(_curve(curve, index) for index, curve in enumerate(curves)),
                    layout=layout("pressure (% of the time)", "slowdown", xaxis={"dtick": 25}),
                ),
            ),
        )


def _curve(curve: PressureCurve, index: int) -> PlotTrace:
    return line(
        [0.0, *(100 * busy(cell) for cell in curve.cells)],
        [1.0, *(cell.value for cell in curve.cells)],
        f"{curve.victim} beside {curve.antagonist}",
        index,
        mode="lines+markers",
        error_y=whiskers([None, *(cell.effect.ratio for cell in curve.cells)], style(index)[0]),
        hovertemplate="%{x:.0f} %: %{y:.2f}<extra></extra>",
    )
