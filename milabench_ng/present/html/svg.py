"""Draws charts as SVG. Pure.

A drawing has the width of its place and the font of its page: what is horizontal is in percent, what is vertical and
all texts in pixels. Margins are padding, so that 0 % and 100 % are the ends of the axes. Colours of text and lines are
the page's, by day, by night and on paper. All texts are escaped, and free of characters that steer or reorder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
from markupsafe import Markup

from milabench_ng.model.plain import plain
from milabench_ng.present.html.figures import Axis, Box, Curve, Key, Label, Look, Mark, Panel, Part, Segment, View

CHARACTER = 7.5
"""The width in pixels that a character of 12 px takes, with some reserve."""
LINE = 18
"""The height of a line of labels."""
LONGEST = 24
"""Characters of a label of an axis; a longer one is cut, and whole under the pointer."""
_NARROWEST = 260
"""The width between the axes on a phone, and of two charts side by side on paper: labels must fit it, or lean."""
_LEAN = 40
"""Degrees."""
_PALE = 0.35
_DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "7 3 2 3"}


class Margins(msgspec.Struct, frozen=True):
    """Room for labels around the axes, in pixels."""

    top: float
    right: float
    bottom: float
    left: float


def drawing(view: View, name: str) -> Markup:
    """The drawing on a page; the vertical axis' title stands above it, where it can be broken into lines."""
    room = margins(view)
    return Markup(
        '<svg role="img" aria-label="{}" style="padding:{:.0f}px {:.0f}px {:.0f}px {:.0f}px;height:{:.0f}px">{}</svg>'
    ).format(plain(name), *msgspec.structs.astuple(room), view.height + room.top + room.bottom, contents(view))


def margins(view: View) -> Margins:
    """What the labels of all panels need; the outermost labels stand out on both sides."""
    across = [panel.x for panel in view.panels]
    return Margins(
        top=max([8.0, *(_depth(axis) for axis in across if "top" in axis.sides)]),
        right=view.right,
        bottom=max([4.0, *(_depth(axis) for axis in across if "bottom" in axis.sides)])
        + (LINE if any(axis.title for axis in across) else 0),
        left=max(
            [12.0, *(CHARACTER * len(_cut(tick.text)) + 10 for tick in view.panels[0].y.ticks), *map(_beside, across)]
        ),
    )


def contents(view: View) -> Markup:
    """All panels, in a place whose edges are the ends of the axes."""
    return _joined(_panel(panel) for panel in view.panels)


def swatch(key: Key) -> Markup:
    """The sample of an entry of the legend."""
    return Markup('<svg width="28" height="12">{}</svg>').format(_drawn(key.sample, _UNIT, _UNIT))


_UNIT = Axis(low=0, high=1, ticks=())


def _panel(panel: Panel) -> Markup:
    inside = _joined((*_frame(panel.x, panel.y), *(_drawn(part, panel.x, panel.y) for part in panel.parts)))
    return Markup('<svg x="{}" width="{}">{}</svg>').format(_at(panel.begin), _at(panel.end - panel.begin), inside)


def _frame(x: Axis, y: Axis) -> Iterator[Markup]:
    """The grid and the labels of both axes, and the title of the horizontal one."""
    for tick in x.ticks:
        place = _at(x.share(tick.at))
        if x.grid:
            yield Markup('<line class="grid" x1="{0}" x2="{0}" y1="0" y2="100%"/>').format(place)
        for side in x.sides:
            yield _below(place, tick.text, side, leaning=_leans(x))
    for tick in y.ticks:
        place = _at(1 - y.share(tick.at))
        if y.grid:
            yield Markup('<line class="grid" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(place)
        yield Markup('<text x="0" y="{}" dx="-6" dy=".35em" text-anchor="end">{}</text>').format(
            place, _name(tick.text)
        )
    yield Markup('<rect class="frame" width="100%" height="100%"/>')
    if x.title:
        beneath = _depth(x) + LINE - 5
        yield Markup('<text x="50%" y="100%" dy="{:.0f}" text-anchor="middle">{}</text>').format(
            beneath, plain(x.title)
        )


def _below(place: str, text: str, side: str, *, leaning: bool) -> Markup:
    """A label of a horizontal axis, above or below it."""
    y, down = ("0", -6) if side == "top" else ("100%", 15)
    if not leaning:
        return Markup('<text x="{}" y="{}" dy="{}" text-anchor="middle">{}</text>').format(place, y, down, _name(text))
    turn, down = (_LEAN, -4) if side == "top" else (-_LEAN, 12)
    return Markup('<svg x="{}" y="{}"><text dy="{}" text-anchor="end" transform="rotate({})">{}</text></svg>').format(
        place, y, down, turn, _name(text)
    )


def _leans(axis: Axis) -> bool:
    """Whether its labels would touch each other in the narrowest place."""
    return sum(CHARACTER * len(_cut(tick.text)) + 6 for tick in axis.ticks) > _NARROWEST


def _depth(axis: Axis) -> float:
    """The height of the labels of a horizontal axis."""
    longest = max((len(_cut(tick.text)) for tick in axis.ticks), default=0)
    return CHARACTER * longest * math.sin(math.radians(_LEAN)) + LINE if _leans(axis) else LINE + 4


def _beside(axis: Axis) -> float:
    """How far leaning labels stand out to the left, in the narrowest place."""
    if not _leans(axis):
        return 0.0
    wide = CHARACTER * math.cos(math.radians(_LEAN))
    return max(wide * len(_cut(tick.text)) + 4 - _NARROWEST * axis.share(tick.at) for tick in axis.ticks)


def _cut(text: str) -> str:
    shown = plain(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _name(text: str) -> Markup:
    """The text of a label."""
    return (
        Markup("{}").format(_cut(text))
        if _cut(text) == plain(text)
        else Markup("{}{}").format(_cut(text), _title(text))
    )


def _drawn(part: Part, x: Axis, y: Axis) -> Markup:
    match part:
        case Curve():
            return _curve(part, x, y)
        case Segment():
            return _segment(part, x, y)
        case Mark():
            return _mark(part, x, y)
        case Box():
            return _box(part, x, y)
        case Label():
            return _label(part, x, y)


def _curve(part: Curve, x: Axis, y: Axis) -> Markup:
    """In a place of 1,000 by 1,000 that is stretched, since only that can be in percent."""
    if not part.points:
        return Markup()
    drawn = [(round(1000 * x.share(at)), round(1000 * (1 - y.share(value)))) for at, value in part.points]
    look = Markup(' class="area" fill="{}"').format(part.look.colour) if part.filled else _stroke(part.look)
    return Markup('<svg viewBox="0 0 1000 1000" preserveAspectRatio="none"><path d="{}"{}>{}</path></svg>').format(
        _path(drawn), look, _title(part.title)
    )


def _path(points: Sequence[tuple[int, int]]) -> str:
    """Through all of ``points``, in steps from each to the next."""
    steps = ((x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(points))
    return f"M{points[0][0]} {points[0][1]}" + "".join(
        f"v{down}" if across == 0 else f"h{across}" if down == 0 else f"l{across} {down}"
        for across, down in steps
        if across or down
    )


def _segment(part: Segment, x: Axis, y: Axis) -> Markup:
    ends = [_at(place) for at, value in (part.begin, part.end) for place in (x.share(at), 1 - y.share(value))]
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}"{} stroke-width="{:g}"{}/>').format(
        *ends, _stroke(part.look), part.width, _paleness(part.pale)
    )


def _mark(part: Mark, x: Axis, y: Axis) -> Markup:
    colour = part.look.colour
    filling = Markup('fill="{}"').format("var(--ground)" if part.hollow else colour)
    look = Markup('{} stroke="{}" stroke-width="{}"{}').format(
        filling, colour, 2 if part.hollow else 1, _paleness(part.pale)
    )
    across, down = _at(x.share(part.at[0])), _at(1 - y.share(part.at[1]))
    if part.look.symbol == "circle":
        return Markup('<circle cx="{}" cy="{}" r="{:.3g}" {}>{}</circle>').format(
            across, down, part.size / 2, look, _title(part.title)
        )
    corners = " ".join(
        f"{part.size / 2 * right:.3g},{part.size / 2 * up:.3g}" for right, up in _SHAPES[part.look.symbol]
    )
    return Markup('<svg x="{}" y="{}"><polygon points="{}" {}>{}</polygon></svg>').format(
        across, down, corners, look, _title(part.title)
    )


def _star(corners: int, *radii: float) -> tuple[tuple[float, float], ...]:
    """Corners around a centre, the first above it, whose distances from it take turns."""
    step = 2 * math.pi / corners
    return tuple(
        (radii[at % len(radii)] * math.sin(at * step), -radii[at % len(radii)] * math.cos(at * step))
        for at in range(corners)
    )


_SHAPES = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": _star(4, 1.25),
    "triangle-up": _star(3, 1.25),
    "triangle-down": tuple((x, -y) for x, y in _star(3, 1.25)),
    "hexagon": _star(6, 1.1),
    "star": _star(10, 1.35, 0.6),
    "cross": tuple((0.37 * x, 0.37 * y) for x, y in (
        (-1, -3), (1, -3), (1, -1), (3, -1), (3, 1), (1, 1), (1, 3), (-1, 3), (-1, 1), (-3, 1), (-3, -1), (-1, -1)
    )),
}  # fmt: skip
"""Corners of symbols with about the area of a circle of radius 1."""


def _box(part: Box, x: Axis, y: Axis) -> Markup:
    (left, right), (top, bottom) = (
        sorted((x.share(part.begin[0]), x.share(part.end[0]))),
        sorted((1 - y.share(part.begin[1]), 1 - y.share(part.end[1]))),
    )
    look = Markup('fill="{}" fill-opacity="{:.3g}"{}').format(
        part.colour,
        part.opacity,
        Markup(' stroke="{}" stroke-dasharray="3 2"').format(part.colour) if part.dashed else "",
    )
    made = Markup('<rect x="{}" y="{}" width="{}" height="{}" {}>{}</rect>').format(
        _at(left), _at(top), _at(right - left), _at(bottom - top), look, _title(part.title)
    )
    middle = _at((left + right) / 2)
    lines = part.text.splitlines()
    return made + _joined(
        Markup('<text class="cell" x="{}" y="{}" dy="{:.2f}em">{}</text>').format(
            middle, _at((top + bottom) / 2), 0.35 + number - (len(lines) - 1) / 2, plain(line)
        )
        for number, line in enumerate(lines)
    )


def _label(part: Label, x: Axis, y: Axis) -> Markup:
    classes = " ".join(name for name, holds in (("quiet", part.quiet), ("over", part.over)) if holds)
    return Markup('<text class="{}" x="{}" y="{}" dx="{:g}" dy="{:g}" text-anchor="{}">{}{}</text>').format(
        classes, _at(x.share(part.at[0])), _at(1 - y.share(part.at[1])), *part.shift, part.anchor, plain(part.text),
        _title(part.title),
    )  # fmt: skip


def _stroke(look: Look) -> Markup:
    dashes = Markup(' stroke-dasharray="{}"').format(_DASHES[look.dash]) if look.dash in _DASHES else ""
    return Markup(' stroke="{}"{}').format(look.colour, dashes)


def _paleness(pale: bool) -> Markup:
    return Markup(' opacity="{}"').format(_PALE) if pale else Markup()


def _title(text: str) -> Markup:
    """What is shown under the pointer."""
    return Markup("<title>{}</title>").format("\n".join(map(plain, text.splitlines()))) if text else Markup()


def _at(share: float) -> str:
    return f"{round(100 * share, 2):g}%"


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
