"""The heat map of slowdowns: victims by antagonists, where only what is beyond doubt is loud. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench_ng.analysis.scoring.neighbours import Slowdown
from milabench_ng.present.html.figures import INK, Chart, PlotTrace, View, label, layout
from milabench_ng.present.layouts.interference import antagonists, around, pressed
from milabench_ng.report.report import Report

_ROW = 44
"""Height of a row in pixels."""
_LOUDEST = 2.0
"""The slowdown that has the full colour, unless there is a larger one."""
_QUIET_TO_LOUD = [[0, "rgba(213,94,0,0)"], [0.05, "rgba(213,94,0,0.2)"], [1, "rgba(213,94,0,0.75)"]]


def slowdown_charts(report: Report) -> Iterator[Chart]:
    """The matrix, if victims ran alone and in company."""
    cells = report.neighbours
    if not cells:
        return
    victims = list(dict.fromkeys(cell.victim for cell in cells))
    yield Chart(
        key="slowdowns",
        title="slowdowns: victims by antagonists",
        wide=True,
        reading="How many times as long a test (row) takes beside a neighbour (column): its rate alone over its rate "
        "there. Coloured, with a star: slower beyond doubt and by more than 2 %; all else has the page's colour. The "
        "95 % intervals are shown under the pointer, and in the table.",
        views=(
            View(
                data=(_heat(cells, victims, antagonists(cells)),),
                layout=layout(
                    "",
                    "",
                    height=130 + _ROW * len(victims),
                    xaxis={"type": "category", "showgrid": False, "side": "top"},
                    yaxis={"type": "category", "showgrid": False, "autorange": "reversed"},
                ),
            ),
        ),
    )


def _heat(cells: Sequence[Slowdown], victims: Sequence[str], besides: Sequence[str]) -> PlotTrace:
    known = {(cell.victim, cell.beside): cell for cell in cells}
    rows = [[known.get((victim, beside)) for beside in besides] for victim in victims]
    return {
        "type": "heatmap",
        "x": [label(beside) for beside in besides],
        "y": [label(victim) for victim in victims],
        "z": [[_loudness(cell) for cell in row] for row in rows],
        "zmin": 1,
        "zmax": max([_LOUDEST, *(cell.value for cell in cells if cell.sure)]),
        "colorscale": _QUIET_TO_LOUD,
        "colorbar": {"title": {"text": "x"}, "thickness": 12},
        "xgap": 1,
        "ygap": 1,
        "text": [
            ["" if cell is None else f"{cell.value:.2f}{' *' if cell.sure else ''}" for cell in row] for row in rows
        ],
        "texttemplate": "%{text}",
        "textfont": {"color": INK},
        "customdata": [["" if cell is None else _hover(cell) for cell in row] for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _loudness(cell: Slowdown | None) -> float | None:
    """The colour's value: none where nothing was measured, and 1 where nothing was found."""
    return None if cell is None else cell.value if cell.sure else 1.0


def _hover(cell: Slowdown) -> str:
    interval = around(cell.effect) or ", no interval"
    lost = f", {cell.lost} lost" if cell.lost else ""
    company = f"; {pressed(cell)}" if cell.company else ""
    return label(f"{cell.name}: {cell.value:.2f}{interval}, {cell.pairs} pairs{lost}{company}")
