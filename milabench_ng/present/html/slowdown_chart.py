"""The heat map of slowdowns: victims by antagonists, where only what is beyond doubt is loud. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.scoring.neighbours import Slowdown
from milabench_ng.present.html.figures import LOUD, Box, Chart, Key, cell, faded, names, plot
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
    loudest = max([_LOUDEST, *(one.value for one in cells if one.sure)])
    victims = list(dict.fromkeys(one.victim for one in cells))
    yield Chart(
        key="slowdowns",
        title="slowdowns: victims by antagonists",
        wide=True,
        reading="Slowdown of each test (row) next to each neighbor (column): its rate alone over its rate there. A "
        "color and a star mark what is significantly above 1.02, adjusted over all cells. Point at a cell for its 95% "
        "interval, which is also in the table.",
        views=(
            plot(
                names(besides, side="top"),
                names(victims, down=True),
                (_box(one, (besides.index(one.beside), victims.index(one.victim)), loudest) for one in cells),
                keys=(_shade(1 + (loudest - 1) * share, loudest) for share in (0.05, 0.5, 1.0)),
                height=_ROW * len(victims),
            ),
        ),
    )


def _box(found: Slowdown, at: tuple[int, int], loudest: float) -> Box:
    """Coloured by its value if that is sure; as if nothing was found, otherwise."""
    opacity = _opacity(found.value if found.sure else 1.0, loudest)
    return cell(at, LOUD, opacity, text=f"{found.value:.2f}{' *' if found.sure else ''}", title=_hover(found))


def _opacity(slowdown: float, loudest: float) -> float:
    return faded(_QUIET_TO_LOUD, (slowdown - 1) / (loudest - 1))


def _shade(slowdown: float, loudest: float) -> Key:
    """An entry of the legend."""
    return Key(name=f"{slowdown:.2f} x", sample=cell((0, 0), LOUD, _opacity(slowdown, loudest)))


def _hover(found: Slowdown) -> str:
    interval = around(found.effect) or ", no interval"
    lost = f", {found.lost} lost" if found.lost else ""
    company = f"; {pressed(found)}" if found.company else ""
    return f"{found.name}: {found.value:.2f}{interval}, {found.pairs} pairs{lost}{company}"
