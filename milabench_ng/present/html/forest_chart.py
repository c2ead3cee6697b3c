"""The forest plot of test ratios: each test's distance from the baseline, its certainty and its contribution. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from milabench_ng.analysis.scoring.comparison import ComparedTest, Comparison
from milabench_ng.model.plain import plain
from milabench_ng.present.html.figures import INK, NEUTRAL, PlotTrace, View, label, layout, style, whiskers
from milabench_ng.present.render.cells import ratio_text
from milabench_ng.present.render.columns import span
from milabench_ng.report.report import Line, Report

_ROW = 30
"""Height of a row in pixels."""
_WIDE = 3
_VERY_WIDE = 300
_MOST_POWERS = 5
"""Of ten beside each other, so that their labels do not touch on a phone."""
_PALE = 0.35
_MARKS_END = 0.64
"""Where the panel of the marks ends and the column of figures begins, as a share of the width."""

Row = tuple[Line, ComparedTest]


def contributions(report: Report, other: Comparison, index: int) -> dict[str, float]:
    """What each weighted test that counts contributes to the logarithm of the ratio."""
    logs = {}
    for at in report.lines:
        compared, weight, test = at.compared[index], at.scored.weight, at.scored.test
        if compared is not None and weight and compared.perf_ratio and test not in other.left_out:
            logs[test] = weight * math.log(compared.perf_ratio)
    total = math.fsum(at.scored.weight or 0.0 for at in report.lines if at.scored.test in logs)
    return {test: log / total for test, log in logs.items()}


def forest_view(report: Report, other: Comparison, index: int, of: str = "") -> View | None:
    """The plot against the ``index``-th baseline, whose name follows ``of``; None if no ratio is known."""
    rows = [(at, found) for at in report.lines if (found := at.compared[index]) is not None and found.perf_ratio]
    if not rows:
        return None
    names = {at.scored.test: label(at.scored.test.removeprefix(f"{report.summary.suite}.")) for at in report.lines}
    added = contributions(report, other, index)
    bars = [_bars(added, names)] if added else []  # Plotly cannot scale an axis by bars of nothing
    ticks = log_ticks([each for _, found in rows for each in _drawn(found)])
    widest = max([1.0, *(abs(share) for bar in bars for share in bar["x"])]) * 2.4
    return View(
        name=plain(f"{of}{other.name}"),
        data=(*_marks(rows, names), _axis_above(names), *bars),
        layout=layout(
            "ratio, log scale",
            "",
            height=170 + _ROW * len(names),
            margin={"l": 10, "r": 14, "t": 30, "b": 10},
            xaxis={"type": "log", "domain": [0, _MARKS_END], **ticks},
            xaxis2={"title": {"text": "share (%)"}, "domain": [0.78, 1], "range": [-widest, widest], "nticks": 3},
            xaxis3={"type": "log", "overlaying": "x", "matches": "x", "side": "top", "showgrid": False, **ticks},
            yaxis={
                "autorange": "reversed",
                "type": "category",
                "categoryorder": "array",
                "categoryarray": list(names.values()),
            },
            shapes=[_even()],
            annotations=[_value(at, index, names) for at in report.lines],
        ),
    )


def _drawn(found: ComparedTest) -> tuple[float, ...]:
    """Where its mark is, and where its whiskers end."""
    known = found.effect.ratio
    return (found.perf_ratio or 1.0,) if known is None else (known.value, known.low, known.high)


def log_ticks(ratios: Sequence[float]) -> dict[str, Any]:
    """Ticks; over a wide range only 1, 2 and 5 of each power of ten, over a very wide one only such powers."""
    low, high = min(1.0, *ratios), max(1.0, *ratios)
    if high < _WIDE * low:
        return {"nticks": 4, "tickangle": 0}
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high < _VERY_WIDE * low else (1,)
    every = math.ceil(len(powers) / _MOST_POWERS)
    return {
        "tickvals": [float(f"{step}e{power}") for power in powers if power % every == 0 for step in steps],
        "tickformat": ",",
        "tickangle": 0,
    }


def _lack(line: Line, index: int) -> str:
    """Why a test has no ratio."""
    found = line.compared[index]
    return "the baseline lacks it" if found is None else found.suppressed or "no rate above 0"


def _value(line: Line, index: int, names: dict[str, str]) -> PlotTrace:
    """The ratio in figures beside its row; grey, with the reason where one points, if it is none or does not count."""
    found = line.compared[index]
    known = found.perf_ratio if found is not None else None
    why = _lack(line, index) if known is None else found.set_aside if found is not None else ""
    return {
        "xref": "paper",
        "x": _MARKS_END + 0.01,
        "xanchor": "left",
        "y": names[line.scored.test],
        "text": "n/a" if known is None else ratio_text(known),
        "hovertext": label(why),
        "showarrow": False,
        "font": {"color": NEUTRAL if why else INK, "size": 11},
    }


def _axis_above(names: dict[str, str]) -> PlotTrace:
    """The scale above the rows as well: an axis is drawn only if something stands on it."""
    return {
        "type": "scatter",
        "xaxis": "x3",
        "x": [1],
        "y": list(names.values())[:1],
        "opacity": 0,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _bars(added: dict[str, float], names: dict[str, str]) -> PlotTrace:
    moved = math.fsum(map(abs, added.values())) or 1.0
    shares = {test: 100 * value / moved for test, value in added.items()}
    return {
        "type": "bar",
        "orientation": "h",
        "xaxis": "x2",
        "x": list(shares.values()),
        "y": [names[test] for test in shares],
        "text": [_signed(share) for share in shares.values()],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": NEUTRAL},
        "showlegend": False,
        "hovertemplate": "%{y}: %{x:.1f} % of all movement<extra></extra>",
    }


def _signed(share: float) -> str:
    """Without decimals, and 0 without a sign."""
    return f"{share:+.0f}" if round(share) else "0"


def _even() -> PlotTrace:
    """The line of the ratio 1."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": 1,
        "x1": 1,
        "y0": 0,
        "y1": 1,
        "line": {"color": NEUTRAL, "dash": "dash", "width": 1},
    }


def _marks(rows: Sequence[Row], names: dict[str, str]) -> list[PlotTrace]:
    """One trace per bound, with its colour and symbol."""
    heaviest = max(at.scored.weight or 0.0 for at, _ in rows) or 1.0
    bounds = dict.fromkeys(_bound(at) for at, _ in rows)
    return [
        _class([row for row in rows if _bound(row[0]) == bound], names, bound, index, heaviest)
        for index, bound in enumerate(bounds)
    ]


def _bound(line: Line) -> str:
    return line.scored.bound or "what is not declared"


def _class(rows: Sequence[Row], names: dict[str, str], bound: str, index: int, heaviest: float) -> PlotTrace:
    colour, symbol, _ = style(index)
    known = [found.effect.ratio for _, found in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(f"bound by {bound}"),
        "x": [at.value if at else found.perf_ratio for at, (_, found) in zip(known, rows, strict=True)],
        "y": [names[line.scored.test] for line, _ in rows],
        "error_x": whiskers(known, colour),
        "marker": {
            "color": colour,
            "symbol": [symbol if found.origin == "measured" else f"{symbol}-open" for _, found in rows],
            "size": [8 + 8 * math.sqrt((line.scored.weight or 0.0) / heaviest) for line, _ in rows],
            "line": {"color": colour, "width": 2},
            "opacity": [_PALE if found.set_aside else 1 for _, found in rows],
        },
        "text": [_words(*row) for row in rows],
        "hovertemplate": "%{y}: %{x:.3f}<br>%{text}<extra></extra>",
    }


def _words(line: Line, found: ComparedTest) -> str:
    known = span(found.effect.ratio) or f"no interval: {label(found.effect.why)}"
    aside = f"<br>does not count: {label(found.set_aside)}" if found.set_aside else ""
    return f"{known}<br>weight {line.scored.weight or 0.0:g}, baseline {found.origin}{aside}"
