"""What a chart is, before anybody draws it: plain values in the form of Plotly's figures. Pure.

Colours are those of Okabe and Ito ("Color universal design", 2008) that are seen on a light and on a dark ground; a
symbol or a dash goes with each, so that colour is never all that tells two things apart. Names come from files that
others wrote: `label` keeps Plotly from reading tags in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from milabench_ng.plain import plain
from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.statistics.intervals import Interval

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
NEUTRAL = "#808080"
"""Seen on both grounds."""

PlotTrace = dict[str, Any]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One picture; a chart with several lets the reader choose."""

    name: str
    data: tuple[PlotTrace, ...]
    layout: dict[str, Any]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart with the words around it."""

    key: str
    title: str
    reading: str
    """How it is to be read."""
    chooses: str = ""
    """What the views differ in."""
    views: tuple[View, ...]


def label(text: str) -> str:
    """``text`` as text: Plotly reads a little HTML in labels."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def style(index: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the ``index``-th of several."""
    dash = DASHES[(index // len(PALETTE) + index) % len(DASHES)]
    return PALETTE[index % len(PALETTE)], SYMBOLS[index % len(SYMBOLS)], dash


def layout(x_title: str, y_title: str, *, height: int = 360, **more: Any) -> dict[str, Any]:
    """Axes with titles, and space for everything; ``more`` goes into the layout, axes are merged."""
    axes = {
        "xaxis": {"title": {"text": x_title}, "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": y_title}, "automargin": True, "zeroline": False},
    }
    for name, axis in axes.items():
        axis.update(more.pop(name, {}))
    legend = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    margin = {"l": 10, "r": 14, "t": 14, "b": 10}
    return {**axes, "height": height, "margin": margin, "legend": legend, "hovermode": "closest", **more}


def whiskers(known: Sequence[Interval | EstimateBand | None], colour: str) -> dict[str, Any]:
    """The intervals around the marks of a trace; a mark without one has none, not one of length 0."""
    if not any(known):
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [at.high - at.value if at else None for at in known],
        "arrayminus": [at.value - at.low if at else None for at in known],
        "color": colour,
    }


def band(begin: float, end: float, text: str) -> dict[str, Any]:
    """Parts of a layout: a shaded part of the x axis, named."""
    return {
        "shapes": [
            {
                "type": "rect",
                "xref": "x",
                "yref": "paper",
                "x0": begin,
                "x1": end,
                "y0": 0,
                "y1": 1,
                "fillcolor": NEUTRAL,
                "opacity": 0.18,
                "line": {"width": 0},
                "layer": "below",
            }
        ],
        "annotations": [
            {
                "xref": "x",
                "yref": "paper",
                "x": (begin + end) / 2,
                "y": 0,
                "yanchor": "bottom",
                "text": label(text),
                "showarrow": False,
            }
        ],
    }


def line(x: Sequence[float], y: Sequence[float], name: str, index: int, **more: Any) -> PlotTrace:
    """A line in the ``index``-th style."""
    colour, symbol, dash = style(index)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "name": label(name),
        "line": {"color": colour, "dash": dash, "width": 1.6},
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        **more,
    }
