"""Price against throughput: a point per node, and lines of equal cost per reference node's worth. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.present.html.figures import (
    DASHED,
    Axis,
    Chart,
    Key,
    Label,
    Mark,
    Part,
    Segment,
    plot,
    round_ticks,
    style,
    whisker,
)
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
    right = 1.5 * max(point.price for point in points)
    top = 1.25 * max(point.interval.high if point.interval else point.ratio for point in points)
    costs = equal_costs([point.price / point.ratio for point in points])
    return Chart(
        key=f"price-{reference}",
        title=f"price against throughput, in nodes of {reference}",
        reading=f"Each mark is a node, with {_known(points)} and what the equivalent of one {reference} node costs. "
        f"Along a dashed line that costs the same, its label in {currency}; further up and to the left is cheaper.",
        views=(
            plot(
                _axis(right, f"price of a node ({currency})"),
                _axis(top, f"ratio to a node of {reference}"),
                (
                    *(Segment(begin=(0, 0), end=_end(cost, right, top), look=DASHED) for cost in costs),
                    *(_label(index, cost, right, top) for index, cost in enumerate(costs)),
                    *(part for index, point in enumerate(points) for part in _mark(index, point, currency)),
                    *(_cost(point, points, right, top, currency) for point in points),
                ),
                keys=(
                    Key(name=point.name, sample=Mark(at=(0.5, 0.5), look=style(i))) for i, point in enumerate(points)
                ),
            ),
        ),
    )


def _known(points: Sequence[Point]) -> str:
    lacking = [point.name for point in points if point.interval is None]
    known = "the 95% interval of its ratio"
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


def _axis(high: float, title: str) -> Axis:
    return Axis(low=0, high=high, ticks=round_ticks(0, high), title=title)


def _label(index: int, cost: float, right: float, top: float) -> Label:
    x, y = _end(cost, right, top)
    along = _ALONG[index % len(_ALONG)]
    return Label(at=(along * x, along * y), text=figure(cost), anchor="end", shift=(0, 4), over=True)


def _span(known: Interval | None) -> str:
    return f" {span(known)}" if known else ""


def _cost(point: Point, points: Sequence[Point], right: float, top: float, currency: str) -> Label:
    """What a mark says: on the left, clear of its interval; on a side without another mark, if there is one."""
    near = [other for other in points if other is not point and abs(other.ratio - point.ratio) < _NEAR[1] * top]
    behind = any(0 <= point.price - other.price < _NEAR[0] * right for other in near)
    ahead = any(0 <= other.price - point.price < _NEAR[0] * right for other in near)
    anchor, shift = ("start", (10.0, 18.0 if ahead else 4.0)) if behind else ("end", (-10.0, 4.0))
    text = f"{figure(point.price / point.ratio)} {currency}"
    return Label(at=(point.price, point.ratio), text=text, anchor=anchor, shift=shift)


def _mark(index: int, point: Point, currency: str) -> Iterator[Part]:
    at, look = (point.price, point.ratio), style(index)
    yield from whisker(at, point.interval, look.colour, upright=True)
    told = f"{point.name}: price {figure(point.price)} {currency}\nratio {point.ratio:.3f}{_span(point.interval)}"
    yield Mark(at=at, look=look, title=told, size=11)
