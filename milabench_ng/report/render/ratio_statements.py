"""Statements on the ratios to baselines, and on what they rest on. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.render.cells import Fact, Tone, four_digits, money, tone_of_verdict, unit_told
from milabench_ng.report.render.columns import span
from milabench_ng.report.report import Report
from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.scoring.comparison import Comparison
from milabench_ng.report.statistics.effects import Effect, unusual
from milabench_ng.report.statistics.intervals import Interval
from milabench_ng.report.summary.summary import name_of_row


def ratios(report: Report) -> Iterator[Fact]:
    """The ratio of throughputs to each baseline with its verdict, both scores, and why they are only indicative."""
    for other in report.comparisons:
        yield Fact(f"ratio to {other.name}", *_verdict_text(other))
        yield Fact("baseline", f"{other.name} ({other.provenance.kind}; {other.provenance.hardware})")
        if other.score is not None and other.ratio is not None:
            unit = f" {unit_told(report.score_unit)}" if other.status == "complete" else ""
            yield Fact("scores compared", _levels(other, unit))
        if other.indicative:
            yield Fact("indicative", f"the ratio to {other.name}: {', '.join(other.indicative)}", "fair")


def _verdict_text(other: Comparison) -> tuple[str, Tone]:
    """The ratio of throughputs with all qualifications; of the scores where a row is estimated."""
    found = other.effect
    if other.status == "none":
        return "none: no weighted test can be compared", "fair"
    if other.band is not None:
        return f"{other.band.value:.3f} {span(other.band)}, not measured ({other.checked})", "fair"
    if found.ratio is None:
        return f"no interval: {_why(other)}", "fair"
    text = f"throughputs {found.ratio.value:.3f} {span(found.ratio)}: {_verdict(found, other.margin)}"
    detectable = "" if found.mde_pct is None else f"; detectable {found.mde_pct:.1f} %"
    needed = "over 1000" if found.repeats_needed is None else str(found.repeats_needed)
    return f"{text}{detectable}; +-1 % takes {needed} repeats at this spread", tone_of_verdict(found.verdict)


def _why(other: Comparison) -> str:
    if other.effect.why == "no repeats are recorded":
        return f"{other.effect.why} on both sides ({other.provenance.kind} baseline)"
    return other.effect.why


def _verdict(found: Effect, margin: float) -> str:
    known = "; ".join(filter(None, (found.why, unusual(margin))))
    if found.verdict == "equivalent" and not known:
        return f"equivalent within {margin:.2g}"
    return f"{found.verdict} ({known})" if known else found.verdict


def span_of_money(interval: Interval | EstimateBand) -> str:
    """``[low, high]``; estimates are labelled."""
    return (
        f"[{money(interval.low)}, {money(interval.high)}]{' estimated' if isinstance(interval, EstimateBand) else ''}"
    )


def _levels(other: Comparison, unit: str) -> str:
    """Both scores over the tests that the ratio is over, and which these are."""
    ours, theirs = other.levels or (other.run_score or 0.0, other.score or 0.0)
    names = ", ".join(map(name_of_row, other.counted))
    which = "the same tests" if other.status == "complete" else f"over {other.tests} of {other.of} tests: {names}"
    many = "" if other.interval is None else " over many repeats"
    return f"{four_digits(ours)} against {four_digits(theirs)}{unit} per device{many}, {which}"
