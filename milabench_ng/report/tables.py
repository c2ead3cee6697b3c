"""What a report says, as columns and named facts with their units; the forms beside this one only lay it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from milabench_ng.report.report import Line, Report
from milabench_ng.report.score import FAILURE_LIMIT

Cell = str | int | float | None
Tone = Literal["plain", "good", "fair", "poor", "bad", "strong", "faint"]

SCORE_UNIT = "classic items/s"
NOT_MEASURED = "-"


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column: what it is called, in which unit, and what it says of a test."""

    key: str
    title: str
    unit: str
    """Empty for a plain number or text; ``unit/s`` for the unit that the row's own column names."""
    value: Callable[[Line], Cell]
    show: Callable[[Cell], str]
    tone: Callable[[Cell], Tone] = lambda _: "plain"
    number: bool = True

    @property
    def header(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Fact(msgspec.Struct, frozen=True):
    """A named statement."""

    name: str
    text: str
    tone: Tone = "plain"


def columns(report: Report) -> tuple[Column, ...]:
    """The columns that this report has something to say in: weights and baseline only where there are any."""
    chosen = [_TEST, _UNIT]
    if report.score is not None:
        chosen.append(_WEIGHT)
    chosen += [_N, _FAIL, _PERF]
    if report.comparison is not None:
        chosen += [_PERF_BASE, _PERF_RATIO]
    chosen += [_STD, _PERF_ADJ]
    if report.comparison is not None:
        chosen += [_PERF_BASE_ADJ, _PERF_RATIO_ADJ]
    return (*chosen, _NODE, _WAIT, _MEMORY)


def header(report: Report) -> tuple[Fact, ...]:
    """What must be known before a number is read."""
    summary = report.summary
    facts = [
        Fact("suite", f"{summary.suite}   ({report.source})", "strong"),
        Fact("devices", f"{summary.devices}: {summary.provenance.hardware}"),
        isolation_fact(report),
        _launches(report),
    ]
    data = dict.fromkeys(entry for line in report.lines for entry in line.row.data)
    if data:
        facts.append(Fact("data", "; ".join(f"{d.name} ({d.kind}, scale {d.scale:g}, {d.cache} cache)" for d in data)))
    if not report.penalize_variance:
        facts.append(Fact("variance", "not penalised", "fair"))
    facts += [
        Fact("mark", f"{mark} ({count} of {len(report.lines)} tests)", "bad") for mark, count in report.marks.items()
    ]
    return (*facts, *(Fact("note", note, "fair") for note in summary.notes))


def isolation_fact(report: Report) -> Fact:
    """How the tenants were held apart."""
    if report.isolated:
        return Fact("isolation", "full", "good")
    if report.summary.units == "classic":
        return Fact("isolation", "not recorded (2020)", "fair")
    return Fact("isolation", f"NOT ISOLATED ({report.isolation})", "bad")


def _launches(report: Report) -> Fact:
    rows = report.summary.tests.values()
    n = sum(row.n - row.missing for row in rows)
    if not report.summary.has_plan:
        return Fact("launches", f"{n} (what was planned is not recorded)")
    planned = sum(row.planned or 0 for row in rows)
    missing, pending = sum(row.missing for row in rows), sum(row.pending for row in rows)
    done = planned - missing - pending
    again = f" ({n - done} more records than planned launches)" if n > done else ""
    if pending:
        return Fact("launches", f"partial: {done} of {planned} launches so far{again}", "fair")
    if missing:
        return Fact("launches", f"{done} of {planned}: {missing} without a record{again}", "bad")
    return Fact("launches", f"{done} of {planned}{again}")


def conclusion(report: Report) -> tuple[Fact, ...]:
    """Failure rate, score, ratio, price."""
    return (*_failure_rate(report), *_score(report), *_ratio(report), *_price(report))


def _failure_rate(report: Report) -> list[Fact]:
    rate = report.failure_rate
    if rate.rate is None:
        return [Fact("failure rate", NOT_MEASURED)]
    verdict = "PASS" if rate.passed else "FAIL"
    text = f"{rate.rate:.2%} ({verdict}: {rate.fail} of {rate.n} launches failed, limit {FAILURE_LIMIT:.2%})"
    return [Fact("failure rate", text, "good" if rate.passed else "bad")]


def _score(report: Report) -> list[Fact]:
    score = report.score
    if score is None:
        return [Fact("score", f"none: no weights for suite {report.summary.suite!r}; give --weights FILE", "fair")]
    if score.per_device is None or score.per_node is None:
        names = ", ".join(score.missing)
        why = f"{len(score.missing)} missing: {names}" if names else "no test with a weight has a result"
        return [Fact("score", f"invalid ({why})", "bad")]
    reasons = "; ".join(score.reasons)
    complete = score.status == "complete"
    state = "complete" if complete else f"partial ({score.tests} of {score.of} tests): {reasons}"
    tone: Tone = "strong" if complete else "fair"
    return [
        Fact("score per device", f"{figure(score.per_device)} {SCORE_UNIT}, {state}", tone),
        Fact("score per node", f"{figure(score.per_node)} {SCORE_UNIT} ({score.devices} devices)", tone),
    ]


def _ratio(report: Report) -> list[Fact]:
    other = report.comparison
    if other is None:
        return []
    name = f"{other.name} ({other.provenance.kind}; {other.provenance.hardware})"
    if other.score is None or other.ratio is None:
        return [Fact("baseline", f"{name}: no weighted test in common, no ratio", "fair")]
    lacking = f" without {', '.join(other.left_out)}" if other.left_out else ""
    over = "" if other.status == "complete" else f", partial: over {other.tests} of {other.of} tests{lacking}"
    per_node = "" if other.ratio_per_node is None else f"; per node {other.ratio_per_node:.3f}"
    return [
        Fact("baseline", name),
        Fact("score of the baseline", f"{figure(other.score)} {SCORE_UNIT} per device, the same tests"),
        Fact("ratio", f"{other.ratio:.3f} per device{per_node}{over}", "strong" if not over else "fair"),
    ]


def _price(report: Report) -> list[Fact]:
    price = report.price
    if price is None:
        return []
    facts = [Fact("price", f"{price.amount:,.2f} $ per {price.per}")]
    if price.rpp is None:
        return [*facts, Fact("RPP", f"{NOT_MEASURED} (there is no score above 0)", "bad")]
    doubt = f" ({report.score.status} score)" if report.score and report.score.status != "complete" else ""
    text = f"{figure(price.rpp)} $ per {SCORE_UNIT}, lower is better{doubt}"
    return [*facts, Fact("RPP", text, "fair" if doubt else "strong")]


def figure(value: float) -> str:
    """A number as people read it: two decimals, none for a large one, more for a small one."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"


def _text(cell: Cell) -> str:
    return NOT_MEASURED if cell is None else str(cell)


def _figure(cell: Cell) -> str:
    return figure(cell) if isinstance(cell, int | float) else NOT_MEASURED


def _one_decimal(cell: Cell) -> str:
    return f"{cell:.1f}" if isinstance(cell, int | float) else NOT_MEASURED


def _whole(cell: Cell) -> str:
    return f"{cell:,.0f}" if isinstance(cell, int | float) else NOT_MEASURED


def _ratio_text(cell: Cell) -> str:
    if not isinstance(cell, int | float):
        return NOT_MEASURED
    return f"{cell:.2f}" if cell >= 0.1 or cell == 0 else f"{cell:.2g}"


def _ratio_tone(cell: Cell) -> Tone:
    if not isinstance(cell, int | float):
        return "plain"
    steps: tuple[tuple[float, Tone], ...] = ((1.1, "strong"), (0.9, "good"), (0.75, "poor"))
    return next((tone for bound, tone in steps if cell >= bound), "bad")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


_TEST = Column(key="test", title="test", unit="", value=lambda at: at.scored.test, show=_text, number=False)
_UNIT = Column(key="unit", title="unit", unit="", value=lambda at: at.scored.unit, show=_text, number=False)
_WEIGHT = Column(
    key="weight", title="weight", unit="", value=lambda at: at.scored.weight or 0.0, show=lambda cell: f"{cell:.4g}"
)
_N = Column(key="n", title="n", unit="", value=lambda at: at.scored.n, show=_whole)
_FAIL = Column(
    key="fail",
    title="fail",
    unit="",
    value=lambda at: at.scored.fail,
    show=_whole,
    tone=lambda cell: "bad" if cell else "plain",
)
_PERF = Column(key="perf", title="perf", unit="unit/s", value=lambda at: at.scored.perf, show=_figure)
_PERF_BASE = Column(
    key="perf_base",
    title="perf_base",
    unit="unit/s",
    value=lambda at: at.compared.perf_base if at.compared else None,
    show=_figure,
)
_PERF_RATIO = Column(
    key="perf_ratio",
    title="perf_ratio",
    unit="",
    value=lambda at: at.compared.perf_ratio if at.compared else None,
    show=_ratio_text,
    tone=_ratio_tone,
)
_STD = Column(key="std_pct", title="std", unit="%", value=lambda at: at.scored.std_pct, show=_one_decimal)
_PERF_ADJ = Column(key="perf_adj", title="perf_adj", unit="unit/s", value=lambda at: at.scored.perf_adj, show=_figure)
_PERF_BASE_ADJ = Column(
    key="perf_base_adj",
    title="perf_base_adj",
    unit="unit/s",
    value=lambda at: at.compared.perf_base_adj if at.compared else None,
    show=_figure,
)
_PERF_RATIO_ADJ = Column(
    key="perf_ratio_adj",
    title="perf_ratio_adj",
    unit="",
    value=lambda at: at.compared.perf_ratio_adj if at.compared else None,
    show=_ratio_text,
    tone=_ratio_tone,
)
_NODE = Column(key="node_total", title="node total", unit="unit/s", value=lambda at: at.node_total, show=_figure)
_WAIT = Column(
    key="wait_pct", title="data wait", unit="%", value=lambda at: _percent(at.row.wait_share), show=_one_decimal
)
_MEMORY = Column(
    key="peak_memory",
    title="peak",
    unit="MiB",
    value=lambda at: at.row.peak_memory or None,
    show=_whole,
)
