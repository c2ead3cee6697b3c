"""The forest of test ratios: how far each test is from the baseline, how sure that is, and what it counts for. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from milabench_ng.plain import plain
from milabench_ng.report.compare import ComparedTest, Comparison
from milabench_ng.report.figures import NEUTRAL, Trace, View, label, layout, style
from milabench_ng.report.report import Line, Report

_ROW = 30
"""Pixels of a row."""

Row = tuple[Line, ComparedTest]


def contributions(report: Report, other: Comparison, index: int) -> dict[str, float]:
    """What each weighted test that both have adds to the logarithm of the ratio of the scores."""
    logs = {}
    for at in report.lines:
        compared, weight, test = at.compared[index], at.scored.weight, at.scored.test
        if compared is not None and weight and compared.perf_ratio_adj and test not in other.left_out:
            logs[test] = weight * math.log(compared.perf_ratio_adj)
    total = math.fsum(at.scored.weight or 0.0 for at in report.lines if at.scored.test in logs)
    return {test: log / total for test, log in logs.items()}


def forest_view(report: Report, other: Comparison, index: int) -> View | None:
    """Against the ``index``-th baseline; None where no ratio is known."""
    rows = [(at, found) for at in report.lines if (found := at.compared[index]) is not None and found.perf_ratio]
    if not rows:
        return None
    names = {at.scored.test: label(at.scored.test.removeprefix(f"{report.summary.suite}.")) for at, _ in rows}
    bars = _bars(contributions(report, other, index), names)
    widest = max([1.0, *map(abs, bars["x"])]) * 2.4
    return View(
        name=plain(other.name),
        data=(*_marks(rows, names), bars),
        layout=layout(
            "ratio, log scale",
            "",
            height=150 + _ROW * len(rows),
            xaxis={"type": "log", "domain": [0, 0.66], "nticks": 5},
            xaxis2={"title": {"text": "share (%)"}, "domain": [0.72, 1], "range": [-widest, widest], "nticks": 3},
            yaxis={
                "autorange": "reversed",
                "type": "category",
                "categoryorder": "array",
                "categoryarray": list(names.values()),
            },
            shapes=[_even()],
        ),
    )


def _bars(added: dict[str, float], names: dict[str, str]) -> Trace:
    moved = math.fsum(map(abs, added.values())) or 1.0
    shares = {test: 100 * value / moved for test, value in added.items()}
    return {
        "type": "bar",
        "orientation": "h",
        "xaxis": "x2",
        "x": list(shares.values()),
        "y": [names[test] for test in shares],
        "text": [f"{share:+.0f}" for share in shares.values()],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": NEUTRAL},
        "showlegend": False,
        "hovertemplate": "%{y}: %{x:.1f} % of all movement<extra></extra>",
    }


def _even() -> Trace:
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


def _marks(rows: Sequence[Row], names: dict[str, str]) -> list[Trace]:
    """A trace for each class of bound: colour and symbol."""
    heaviest = max(at.scored.weight or 0.0 for at, _ in rows) or 1.0
    bounds = dict.fromkeys(_bound(at) for at, _ in rows)
    return [
        _class([row for row in rows if _bound(row[0]) == bound], names, bound, index, heaviest)
        for index, bound in enumerate(bounds)
    ]


def _bound(line: Line) -> str:
    return line.scored.bound or "what is not declared"


def _class(rows: Sequence[Row], names: dict[str, str], bound: str, index: int, heaviest: float) -> Trace:
    colour, symbol, _ = style(index)
    known = [found.effect.ratio for _, found in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(f"bound by {bound}"),
        "x": [at.value if at else found.perf_ratio for at, (_, found) in zip(known, rows, strict=True)],
        "y": [names[line.scored.test] for line, _ in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [at.high - at.value if at else 0.0 for at in known],
            "arrayminus": [at.value - at.low if at else 0.0 for at in known],
            "color": colour,
        },
        "marker": {
            "color": colour,
            "symbol": [symbol if found.origin == "measured" else f"{symbol}-open" for _, found in rows],
            "size": [8 + 8 * math.sqrt((line.scored.weight or 0.0) / heaviest) for line, _ in rows],
            "line": {"color": colour, "width": 2},
        },
        "text": [_words(*row) for row in rows],
        "hovertemplate": "%{y}: %{x:.3f}<br>%{text}<extra></extra>",
    }


def _words(line: Line, found: ComparedTest) -> str:
    ratio = found.effect.ratio
    span = f"[{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else f"no interval: {label(found.effect.why)}"
    return f"{span}<br>weight {line.scored.weight or 0.0:g}, baseline {found.origin}"
