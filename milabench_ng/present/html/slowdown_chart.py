"""The heat map of slowdowns: victims by antagonists, where only what is beyond doubt is loud. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.scoring.neighbours import Slowdown
from milabench_ng.present.html.figures import LOUD, Box, Chart, Key, Panel, View, faded, names
from milabench_ng.present.layouts.interference import antagonists, around, pressed
from milabench_ng.report.report import Report

_ROW = 44
"""Height of a row in pixels."""
_LOUDEST = 2.0
"""The slowdown that has the full colour, unless there is a larger one."""
_QUIET_TO_LOUD = ((0.0, 0.0), (0.05, 0.2), (1.0, 0.75))
"""Opacity of cells."""


def slowdown_charts(report: Report) -> Iterator[Chart]:
    """The matrix, if victims ran alone and in company."""
    cells = report.neighbours
    if not cells:
        return
    besides = antagonists(cells)
    loudest = max([_LOUDEST, *(cell.value for cell in cells if cell.sure)])
    victims = list(dict.fromkeys(cell.victim for cell in cells))
    yield Chart(
        key="slowdowns",
        title="slowdowns: victims by antagonists",
        wide=True,
        reading="Slowdown of each test (row) next to each neighbor (column): its rate alone over its rate there. A "
        "color and a star mark what is significantly slower, by more than 2%. Point at a cell for its 95% interval, "
        "which is also in the table.",
        views=(
            View(
                panels=(
                    Panel(
                        x=names(besides, side="top"),
                        y=names(victims, down=True),
                        parts=tuple(
                            _box(cell, besides.index(cell.beside), victims.index(cell.victim), loudest)
                            for cell in cells
                        ),
                    ),
                ),
                keys=tuple(_shade(1 + (loudest - 1) * share, loudest) for share in (0.05, 0.5, 1.0)),
                height=_ROW * len(victims),
            ),
        ),
    )


def _box(cell: Slowdown, column: int, line: int, loudest: float) -> Box:
    """Coloured by its value if that is sure; as if nothing was found, otherwise."""
    return Box(
        begin=(column, line),
        end=(column + 1, line + 1),
        colour=LOUD,
        opacity=_opacity(cell.value if cell.sure else 1.0, loudest),
        text=f"{cell.value:.2f}{' *' if cell.sure else ''}",
        title=_hover(cell),
    )


def _opacity(slowdown: float, loudest: float) -> float:
    return faded(_QUIET_TO_LOUD, (slowdown - 1) / (loudest - 1))


def _shade(slowdown: float, loudest: float) -> Key:
    """An entry of the legend."""
    sample = Box(begin=(0, 0), end=(1, 1), colour=LOUD, opacity=_opacity(slowdown, loudest))
    return Key(name=f"{slowdown:.2f} x", sample=sample)


def _hover(cell: Slowdown) -> str:
    interval = around(cell.effect) or ", no interval"
    lost = f", {cell.lost} lost" if cell.lost else ""
    company = f"; {pressed(cell)}" if cell.company else ""
    return f"{cell.name}: {cell.value:.2f}{interval}, {cell.pairs} pairs{lost}{company}"
