"""Charts before they are drawn: axes, and what stands between them, as plain values. Pure; `svg` draws them.

Colours are those of Okabe and Ito ("Color universal design", 2008) that are visible on light and dark backgrounds; each
comes with a symbol or a dash, so that colour is never the only distinction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from milabench_ng.analysis.statistics.intervals import Interval

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
NEUTRAL = "#808080"
"""Visible on light and dark backgrounds."""
LOUD = PALETTE[3]
"""Of cells that stand out; quiet ones have the colour of the page, by day and by night."""
FEWEST_POINTS = 3
"""What has fewer is told in a tile or a table."""
_MOST_TICKS = 6
_LARGEST_WRITTEN_OUT = 1e7
_WIDE = 3
_VERY_WIDE = 300
_MOST_POWERS = 5
"""Of ten beside each other, so that their labels do not touch on a phone."""
_FEW_TICKS = 4
_ROOM = 0.06
"""Beside the outermost values, as a share of the axis."""


class Look(msgspec.Struct, frozen=True):
    """How a series is told from the others."""

    colour: str
    symbol: str = "circle"
    dash: str = "solid"


class Tick(msgspec.Struct, frozen=True):
    """A labelled place on an axis."""

    at: float
    text: str


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """From ``low``, on the left or at the bottom, to ``high``; these may be in any order."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    title: str = ""
    log: bool = False
    grid: bool = True
    sides: tuple[str, ...] = ("bottom",)
    """Where the labels of a horizontal axis stand: top, bottom."""

    def share(self, value: float) -> float:
        """Where ``value`` is, from 0 to 1."""
        low, high, at = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return (at - low) / (high - low)


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A line through points, or the area that they enclose."""

    points: tuple[tuple[float, float], ...]
    look: Look
    title: str = ""
    filled: bool = False


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line."""

    begin: tuple[float, float]
    end: tuple[float, float]
    look: Look
    width: float = 1.0
    pale: bool = False


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A symbol."""

    at: tuple[float, float]
    look: Look
    title: str = ""
    """Shown under the pointer."""
    size: float = 8.0
    """In pixels."""
    hollow: bool = False
    pale: bool = False


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle: a bar, a cell, a range."""

    begin: tuple[float, float]
    end: tuple[float, float]
    colour: str = NEUTRAL
    opacity: float = 1.0
    dashed: bool = False
    text: str = ""
    """In its middle."""
    title: str = ""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A text beside a place."""

    at: tuple[float, float]
    text: str
    anchor: str = "middle"
    """The part of the text that is there: start, middle, end."""
    shift: tuple[float, float] = (0.0, 0.0)
    """In pixels, to the right and down."""
    quiet: bool = False
    over: bool = False
    """Whether it hides what is behind it."""
    title: str = ""


Part = Curve | Segment | Mark | Box | Label


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Two axes and what stands between them."""

    x: Axis
    y: Axis
    parts: tuple[Part, ...]
    begin: float = 0.0
    end: float = 1.0
    """The part of the width that it takes."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the legend."""

    name: str
    sample: Segment | Mark | Box
    """Between (0, 0) and (1, 1)."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One picture; if a chart has several, the reader chooses."""

    name: str = ""
    panels: tuple[Panel, ...]
    keys: tuple[Key, ...] = ()
    height: int = 320
    """In pixels, between the axes."""
    right: int = 28
    """The room beside the axes, in pixels."""


def plot(
    x: Axis, y: Axis, parts: Iterable[Part], *, keys: Iterable[Key] = (), name: str = "", height: int = 320
) -> View:
    """A picture of one panel."""
    return View(name=name, panels=(Panel(x=x, y=y, parts=tuple(parts)),), keys=tuple(keys), height=height)


def cell(
    at: tuple[int, int], colour: str, opacity: float, *, text: str = "", title: str = "", dashed: bool = False
) -> Box:
    """A cell of a heat map; ``at``: its column and row."""
    end = (at[0] + 1, at[1] + 1)
    return Box(begin=at, end=end, colour=colour, opacity=opacity, text=text, title=title, dashed=dashed)


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


def style(index: int) -> Look:
    """The look of the ``index``-th series."""
    dash = DASHES[(index // len(PALETTE) + index) % len(DASHES)]
    return Look(PALETTE[index % len(PALETTE)], SYMBOLS[index % len(SYMBOLS)], dash)


DASHED = Look(NEUTRAL, dash="dash")
"""Of what serves for comparison."""


def numbers(values: Iterable[float], title: str, *, from_zero: bool = False) -> Axis:
    """A linear axis around ``values``, with some room."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = _ROOM * (high - low) or _ROOM * abs(high) or 1.0
    low, high = 0.0 if from_zero and low >= 0 else low - room, high + room
    return Axis(low=low, high=high, ticks=round_ticks(low, high), title=title)


def round_ticks(low: float, high: float, most: int = _MOST_TICKS) -> tuple[Tick, ...]:
    """At most ``most`` multiples of 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * power for size in (1, 2, 2.5, 5, 10, 20) if (high - low) / (size * power) <= most)
    places = max(0, 1 - math.floor(math.log10(step)))
    at = (number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1))
    return tuple(Tick(value, written(value, places)) for value in at)


def logarithmic(values: Sequence[float], title: str) -> Axis:
    """A logarithmic axis around ``values``, with some room."""
    low, high = min(values), max(values)
    room = (high / low) ** _ROOM if high > low else 1 + _ROOM
    low, high = low / room, high * room
    return Axis(low=low, high=high, ticks=log_ticks(low, high), title=title, log=True)


def log_ticks(low: float, high: float) -> tuple[Tick, ...]:
    """Ticks; over a wide range only 1, 2 and 5 of each power of ten, over a very wide one only such powers."""
    if high < _WIDE * low:
        return round_ticks(low, high, _FEW_TICKS)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high < _VERY_WIDE * low else (1,)
    every = math.ceil(len(powers) / _MOST_POWERS)
    at = (float(f"{step}e{power}") for power in powers if power % every == 0 for step in steps)
    return tuple(Tick(value, f"{value:,g}") for value in at if low <= value <= high)


def written(value: float, places: int) -> str:
    """``value`` with as many decimals as it needs, and not more than ``places``."""
    if not 10.0**-places / 2 <= abs(value) < _LARGEST_WRITTEN_OUT:
        return f"{value:.3g}" if abs(value) >= _LARGEST_WRITTEN_OUT else "0"
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def names(labels: Sequence[str], *, down: bool = False, side: str = "bottom") -> Axis:
    """An axis with a place for each label, at 0.5, 1.5 and so on; ``down``: from the top to the bottom."""
    low, high = (len(labels), 0) if down else (0, len(labels))
    ticks = tuple(Tick(at + 0.5, text) for at, text in enumerate(labels))
    return Axis(low=low, high=high, ticks=ticks, grid=False, sides=(side,))


def counts(values: Sequence[int], title: str) -> Axis:
    """An axis of numbers of devices, with some room."""
    most = max(values)
    ticks = tuple(Tick(at, str(at)) for at in range(1, most + 1) if most <= 16 or at % 4 == 0)
    room = 0.06 * (most - min(values)) or 1.0
    return Axis(low=min(values) - room, high=most + room, ticks=ticks, title=title)


def line_key(name: str, look: Look) -> Key:
    """The entry of a line in the legend."""
    return Key(name=name, sample=Segment(begin=(0, 0.5), end=(1, 0.5), look=look, width=1.6))


def whisker(
    at: tuple[float, float], known: Interval | None, colour: str, *, upright: bool, pale: bool = False
) -> tuple[Segment, ...]:
    """The interval of a mark; a mark without one has no whisker, rather than one of length 0."""
    if known is None:
        return ()
    ends = [(at[0], each) if upright else (each, at[1]) for each in (known.low, known.high)]
    return (Segment(begin=ends[0], end=ends[1], look=Look(colour), width=2.0, pale=pale),)


def stretches(edges: Sequence[float], values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """The points of a line that has each of ``values`` between two ``edges``, of which there is one more."""
    return tuple(
        point
        for (begin, end), value in zip(pairwise(edges), values, strict=True)
        for point in ((begin, value), (end, value))
    )


def marked_line(
    points: Sequence[tuple[float, float]], titles: Sequence[str], look: Look, name: str
) -> Iterator[Curve | Mark]:
    """A line with a mark at each point."""
    yield Curve(points=tuple(points), look=look, title=name)
    for at, title in zip(points, titles, strict=True):
        yield Mark(at=at, look=look, title=f"{name}, {title}")


def pace_key(ratio: float, opacity: float) -> Key:
    """An entry of the legend of a heat map: a cell of this ratio."""
    return Key(name=f"{ratio:.2f}", sample=Box(begin=(0, 0), end=(1, 1), colour=pace_colour(ratio), opacity=opacity))


def pace_colour(ratio: float) -> str:
    """Of a cell that is slower or faster than usual."""
    return LOUD if ratio < 1 else PALETTE[0]


def faded(stops: Sequence[tuple[float, float]], at: float) -> float:
    """The value at ``at`` between ``stops``, which are pairs of place and value."""
    if at <= stops[0][0]:
        return stops[0][1]
    for (low, first), (high, last) in pairwise(stops):
        if at <= high:
            return first + (last - first) * (at - low) / (high - low)
    return stops[-1][1]
