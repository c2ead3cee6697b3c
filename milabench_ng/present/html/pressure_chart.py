"""The curves of pressure: how much slower a victim is, the harder its neighbour presses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench_ng.analysis.scoring.pressure import PressureCurve, busy, pressure_curves
from milabench_ng.present.html.figures import (
    FEWEST_POINTS,
    Axis,
    Chart,
    Part,
    Tick,
    line_key,
    marked_line,
    numbers,
    plot,
    style,
    whisker,
)
from milabench_ng.report.report import Report


def pressure_charts(report: Report) -> Iterator[Chart]:
    """The curves that have enough points beside that of no pressure."""
    curves = [curve for curve in pressure_curves(report.neighbours) if len(curve.cells) >= FEWEST_POINTS - 1]
    if curves:
        yield Chart(
            key="pressure",
            title="slowdown by load",
            reading="Slowdown of a victim next to an antagonist that is busy for a part of the time (its option busy), "
            "with 95% intervals. Where the curve becomes steep, the neighbor becomes too much.",
            views=(
                plot(
                    _PRESSURE,
                    _slowdowns(curves),
                    (part for index, curve in enumerate(curves) for part in _curve(curve, index)),
                    keys=(line_key(_name(curve), style(index)) for index, curve in enumerate(curves)),
                ),
            ),
        )


_PRESSURE = Axis(
    low=-4,
    high=104,
    ticks=tuple(Tick(at, str(at)) for at in (0, 25, 50, 75, 100)),
    title="load (% of the time)",
)


def _slowdowns(curves: Sequence[PressureCurve]) -> Axis:
    cells = [cell for curve in curves for cell in curve.cells]
    ends = [end for cell in cells if (known := cell.effect.ratio) for end in (known.low, known.high)]
    return numbers([1.0, *(cell.value for cell in cells), *ends], "slowdown")


def _name(curve: PressureCurve) -> str:
    return f"{curve.victim} beside {curve.antagonist}"


def _curve(curve: PressureCurve, index: int) -> Iterator[Part]:
    points = [(0.0, 1.0), *((100 * busy(cell), cell.value) for cell in curve.cells)]
    for at, cell in zip(points[1:], curve.cells, strict=True):
        yield from whisker(at, cell.effect.ratio, style(index).colour, upright=True)
    yield from marked_line(points, [f"{at:.0f} %: {value:.2f}" for at, value in points], style(index), _name(curve))
