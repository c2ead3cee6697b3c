"""Charts before they are drawn: plain values in the format of Plotly's figures. Pure.

Colours are those of Okabe and Ito ("Color universal design", 2008) that are visible on light and dark backgrounds; each
comes with a symbol or a dash, so that colour is never the only distinction. Names come from untrusted files: `label`
keeps Plotly from parsing tags in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.model.plain import plain

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
NEUTRAL = "#808080"
"""Visible on light and dark backgrounds."""

INK = "ink"
"""Stands for the colour of the page's text, which the page puts in; `ground` for that of its ground."""
FEWEST_POINTS = 3
"""What has fewer is told in a tile or a table."""

PlotTrace = dict[str, Any]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One picture; if a chart has several, the reader chooses."""

    name: str = ""
    data: tuple[PlotTrace, ...]
    layout: dict[str, Any]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart with its accompanying text."""

    key: str
    title: str
    reading: str
    """How to read it."""
    chooses: str = ""
    """How the views differ."""
    views: tuple[View, ...]
    wide: bool = False
    """Whether it takes the whole width of a sheet of paper; others stand side by side."""


def label(text: str) -> str:
    """Escape ``text``: Plotly interprets some HTML in labels."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def style(index: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the ``index``-th series."""
    dash = DASHES[(index // len(PALETTE) + index) % len(DASHES)]
    return PALETTE[index % len(PALETTE)], SYMBOLS[index % len(SYMBOLS)], dash


def layout(x_title: str, y_title: str, *, height: int = 360, **more: Any) -> dict[str, Any]:
    """A layout with axis titles and enough space; ``more`` is added to it, and axes are merged."""
    axes = {
        "xaxis": {"title": {"text": x_title}, "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": y_title}, "automargin": True, "zeroline": False},
    }
    for name, axis in axes.items():
        axis.update(more.pop(name, {}))
    legend = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    margin = {"l": 10, "r": 14, "t": 14, "b": 10}
    return {**axes, "height": height, "margin": margin, "legend": legend, "hovermode": "closest", **more}


def whiskers(known: Sequence[Interval | None], colour: str) -> dict[str, Any]:
    """The error bars of a trace; a mark without an interval has none, rather than one of length 0."""
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
    """Layout entries for a named, shaded range of the x axis."""
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


def stretches(edges: Sequence[float], values: Sequence[float], name: str, index: int, **more: Any) -> PlotTrace:
    """A line that has each of ``values`` between two ``edges``, of which there is one more."""
    drawn = line(edges, (*values[:1], *values), name, index, **more)
    return {**drawn, "line": {**drawn["line"], "shape": "vh"}}
