"""Price against throughput: a point per node, and lines of equal cost per reference node's worth. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.present.html.figures import NEUTRAL, Chart, PlotTrace, View, label, layout, style, whiskers
from milabench_ng.present.render.cells import figure
from milabench_ng.present.render.columns import span
from milabench_ng.tender.tender import Tender

_ALONG = (0.97, 0.9)
"""Where on its line a label ends: apart from its neighbours, and further out than any mark."""


_NEAR = (0.14, 0.08)
"""The room that a mark's text takes, as shares of the chart's width and height."""


class Point(msgspec.Struct, frozen=True):
    """One node."""

    name: str
    price: float
    ratio: float
    interval: Interval | None
    """The interval of ``ratio``."""


def tender_chart(tender: Tender, *, several: bool) -> Chart | None:
    """The chart of all bids with a ratio; None if these are not several. ``several``: whether to name the suite."""
    points = [Point(row.name, row.price, row.ratio, row.ratio_interval) for row in tender.rows if row.ratio]
    reference = f"{tender.reference}, {tender.suite}" if several else tender.reference
    return price_chart(points, reference, tender.currency) if len(points) > 1 else None


def price_chart(points: Sequence[Point], reference: str, currency: str) -> Chart:
    """The chart of ``points``, in nodes of ``reference``."""
    right = 1.5 * max(point.price for point in points)
    top = 1.25 * max(point.interval.high if point.interval else point.ratio for point in points)
    costs = equal_costs([point.price / point.ratio for point in points])
    return Chart(
        key=f"price-{reference}",
        title=f"price against throughput, in nodes of {reference}",
        reading=f"Each mark is a node, with {_known(points)} and what a {reference} node's worth costs with it. "
        f"Along a dashed line that costs the same, its label in {currency}; further up and to the left is cheaper.",
        views=(
            View(
                data=(
                    *(_line(cost, right, top) for cost in costs),
                    *(
                        _mark(index, point, _beside(point, points, right, top), currency)
                        for index, point in enumerate(points)
                    ),
                ),
                layout=layout(
                    f"price of a node ({label(currency)})",
                    f"ratio to a node of {label(reference)}",
                    xaxis={"range": [0, right]},
                    yaxis={"range": [0, top]},
                    annotations=[_label(index, cost, right, top) for index, cost in enumerate(costs)],
                ),
            ),
        ),
    )


def _known(points: Sequence[Point]) -> str:
    lacking = [point.name for point in points if point.interval is None]
    known = "the 95 % interval of its ratio"
    if not lacking:
        return known
    return f"{known} (none is known of {', '.join(lacking)})"


def equal_costs(costs: Sequence[float]) -> list[float]:
    """Round numbers that span ``costs``, with two more on either side."""
    low, high = min(costs), max(costs)
    decades = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    steps = [step * 10.0**power for power in decades for step in (1, 1.5, 2, 3, 5, 7)]
    begin, end = bisect_left(steps, low), bisect_right(steps, high)
    return steps[max(0, begin - 2) : end + 2]


def _end(cost: float, right: float, top: float) -> tuple[float, float]:
    """Where the line leaves the chart."""
    return (right, right / cost) if right / cost <= top else (top * cost, top)


def _line(cost: float, right: float, top: float) -> PlotTrace:
    x, y = _end(cost, right, top)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [0, x],
        "y": [0, y],
        "line": {"color": NEUTRAL, "dash": "dash", "width": 1},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _label(index: int, cost: float, right: float, top: float) -> PlotTrace:
    x, y = _end(cost, right, top)
    along = _ALONG[index % len(_ALONG)]
    return {
        "x": along * x,
        "y": along * y,
        "text": figure(cost),
        "xanchor": "right",
        "showarrow": False,
        "bgcolor": "ground",
        "font": {"size": 11},
    }


def _span(known: Interval | None) -> str:
    return f" {span(known)}" if known else ""


def _beside(point: Point, points: Sequence[Point], right: float, top: float) -> str:
    """Where a mark's text goes: on the left, clear of its interval; on a side without another mark, if there is one."""
    near = [other for other in points if other is not point and abs(other.ratio - point.ratio) < _NEAR[1] * top]
    behind = any(0 <= point.price - other.price < _NEAR[0] * right for other in near)
    ahead = any(0 <= other.price - point.price < _NEAR[0] * right for other in near)
    if not behind:
        return "middle left"
    return "bottom right" if ahead else "middle right"


def _mark(index: int, point: Point, beside: str, currency: str) -> PlotTrace:
    colour, symbol, _ = style(index)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": label(point.name),
        "x": [point.price],
        "y": [point.ratio],
        "text": [f"{figure(point.price / point.ratio)} {label(currency)}"],
        "textposition": beside,
        "cliponaxis": False,
        "error_y": whiskers([point.interval], colour),
        "marker": {"color": colour, "symbol": symbol, "size": 11},
        "showlegend": True,
        "hovertemplate": f"price %{{x:,.0f}}<br>ratio %{{y:.3f}}{_span(point.interval)}",
    }
