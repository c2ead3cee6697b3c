"""The forest plot of test ratios: each test's distance from the baseline, its certainty and its contribution. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.analysis.scoring.comparison import ComparedTest, Comparison
from milabench_ng.model.plain import plain
from milabench_ng.present.html.figures import (
    DASHED,
    Axis,
    Box,
    Key,
    Label,
    Look,
    Mark,
    Panel,
    Part,
    Segment,
    View,
    logarithmic,
    names,
    style,
    whisker,
)
from milabench_ng.present.render.cells import ratio_text
from milabench_ng.present.render.columns import span
from milabench_ng.report.report import Line, Report

_ROW = 30
"""Height of a row in pixels."""
_MARKS_END, _SHARES_BEGIN = 0.6, 0.86
"""Between the panel of the marks and that of the shares is a column of figures; another is on the right."""
_COLUMN = 40
"""Its width in pixels."""

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
    added = contributions(report, other, index)
    tests = names([at.scored.test.removeprefix(f"{report.summary.suite}.") for at in report.lines], down=True)
    places = {at.scored.test: tick.at for at, tick in zip(report.lines, tests.ticks, strict=True)}
    ratios = _ratios([each for _, found in rows for each in _drawn(found)])
    heaviest = max(at.scored.weight or 0.0 for at, _ in rows) or 1.0
    bounds = list(dict.fromkeys(_bound(at) for at, _ in rows))
    looks = {bound: style(at) for at, bound in enumerate(bounds)}
    marks = Panel(
        x=ratios,
        y=tests,
        end=_MARKS_END,
        parts=(
            Segment(begin=(1, tests.low), end=(1, tests.high), look=DASHED),
            *(part for row in rows for part in _mark(row, places, looks[_bound(row[0])], heaviest)),
            *(_value(at, index, (ratios.high, places[at.scored.test])) for at in report.lines),
        ),
    )
    return View(
        name=plain(f"{of}{other.name}"),
        panels=(marks, _shares(added, places, tests)) if added else (marks,),
        keys=tuple(Key(name=f"bottleneck: {bound}", sample=Mark(at=(0.5, 0.5), look=looks[bound])) for bound in bounds),
        height=_ROW * len(report.lines),
        right=_COLUMN,
    )


def _drawn(found: ComparedTest) -> tuple[float, ...]:
    """Where its mark is, and where its whiskers end."""
    known = found.effect.ratio
    return (found.perf_ratio or 1.0,) if known is None else (known.value, known.low, known.high)


def _ratios(drawn: Sequence[float]) -> Axis:
    """A logarithmic axis around 1 and what is ``drawn``, with its scale above the rows as well."""
    return msgspec.structs.replace(logarithmic((1.0, *drawn), "ratio, log scale"), sides=("top", "bottom"))


def _lack(line: Line, index: int) -> str:
    """Why a test has no ratio."""
    found = line.compared[index]
    return "the baseline lacks it" if found is None else found.suppressed or "no rate above 0"


def _value(line: Line, index: int, at: tuple[float, float]) -> Label:
    """The ratio in figures beside its row; grey, with the reason where one points, if it is none or does not count."""
    found = line.compared[index]
    known = found.perf_ratio if found is not None else None
    why = _lack(line, index) if known is None else found.set_aside if found is not None else ""
    text = "n/a" if known is None else ratio_text(known)
    return Label(at=at, text=text, anchor="start", shift=(8, 4), quiet=bool(why), title=why)


def _shares(added: dict[str, float], places: dict[str, float], tests: Axis) -> Panel:
    """Bars of what each test contributes."""
    moved = math.fsum(map(abs, added.values())) or 1.0
    shares = {test: 100 * value / moved for test, value in added.items()}
    widest = max([1.0, *map(abs, shares.values())])
    bars = [part for test, share in shares.items() for part in _bar(test, share, widest, places[test])]
    return Panel(
        x=Axis(low=-widest, high=widest, ticks=(), title="share (%)"),
        y=msgspec.structs.replace(tests, ticks=()),
        begin=_SHARES_BEGIN,
        parts=tuple(bars),
    )


def _bar(test: str, share: float, widest: float, place: float) -> Iterator[Part]:
    yield Box(begin=(0, place - 0.35), end=(share, place + 0.35), title=f"{test}: {share:.1f}% of the difference")
    yield Label(at=(widest, place), text=_signed(share), anchor="start", shift=(8, 4))


def _signed(share: float) -> str:
    """Without decimals, and 0 without a sign."""
    return f"{share:+.0f}" if round(share) else "0"


def _bound(line: Line) -> str:
    return line.scored.bound or "what is not declared"


def _mark(row: Row, places: dict[str, float], look: Look, heaviest: float) -> Iterator[Part]:
    """The ratio with its interval; a larger mark has more weight."""
    line, found = row
    known = found.effect.ratio
    at = (known.value if known else found.perf_ratio or 1.0, places[line.scored.test])
    yield from whisker(at, known, look.colour, upright=False, pale=bool(found.set_aside))
    yield Mark(
        at=at,
        look=look,
        size=8 + 8 * math.sqrt((line.scored.weight or 0.0) / heaviest),
        hollow=found.origin != "measured",
        pale=bool(found.set_aside),
        title=_words(line, found),
    )


def _words(line: Line, found: ComparedTest) -> str:
    known = span(found.effect.ratio) or f"no interval: {found.effect.why}"
    aside = f"\ndoes not count: {found.set_aside}" if found.set_aside else ""
    weight = f"weight {line.scored.weight or 0.0:g}, baseline {found.origin}"
    return f"{line.scored.test}: {found.perf_ratio:.3f}\n{known}\n{weight}{aside}"
