"""Statements on the ratios to baselines, and on the costs that follow from them. Pure."""

from __future__ import annotations

from milabench_ng.report.render.cells import NOT_MEASURED, Fact, Tone, figure, tone_of_verdict
from milabench_ng.report.render.columns import span
from milabench_ng.report.report import Report
from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.scoring.comparison import Comparison, SubRatio
from milabench_ng.report.scoring.cost import PerReference
from milabench_ng.report.statistics.effects import Effect, unusual
from milabench_ng.report.statistics.intervals import Interval

ABSENT = "not measured"


def ratios(report: Report) -> list[Fact]:
    """The throughput ratio to each baseline, and what it leaves out."""
    if not report.comparisons:
        return [Fact("ratio", f"{ABSENT} (no --compare)", "faint")]
    return [
        fact
        for other in report.comparisons
        for fact in (Fact(f"ratio to {other.name}", *_verdict_text(other)), *_left_out(other))
    ]


def _left_out(other: Comparison) -> list[Fact]:
    """The tests that the ratio does not cover; a separate table has the reasons."""
    if not other.reasons:
        return []
    names = ", ".join(label.partition(".")[2] or label for label in other.reasons)
    return [
        Fact("left out of it", f"{len(other.reasons)} of {other.of} weighted tests (why: see below): {names}", "fair")
    ]


def _verdict_text(other: Comparison) -> tuple[str, Tone]:
    """The throughput ratio with all qualifications."""
    found = other.effect
    per_node = "" if other.ratio_per_node is None else f", {other.ratio_per_node:.3f} per node"
    partial = "" if other.status == "complete" else f"; over {other.tests} of {other.of} weighted tests"
    if other.status == "none":
        return f"{ABSENT}: no weighted test can be compared", "fair"
    if other.band is not None:
        return (
            f"{other.band.value:.3f} {span(other.band)}{_estimated(other.checked)} per device{per_node}{partial}",
            "fair",
        )
    if found.ratio is None:
        known = NOT_MEASURED if other.ratio is None else f"{other.ratio:.3f} per device{per_node} (of the scores)"
        return f"{known}; no interval: {_why(other)}{partial}", "fair"
    text = f"{found.ratio.value:.3f} {span(found.ratio)}: {_verdict(found, other.margin)}"
    detectable = "" if found.mde_pct is None else f"; detectable {found.mde_pct:.1f} %"
    needed = "over 1000" if found.repeats_needed is None else str(found.repeats_needed)
    return f"{text}{detectable}; +-1 % takes {needed} repeats at this spread{partial}", tone_of_verdict(found.verdict)


def _estimated(checked: str) -> str:
    """The note after the band of every number that rests on an estimate."""
    return f", not measured ({checked})"


def _why(other: Comparison) -> str:
    if other.effect.why == "no repeats are recorded":
        return f"{other.effect.why} on both sides ({other.provenance.kind} baseline)"
    return other.effect.why


def _verdict(found: Effect, margin: float) -> str:
    known = "; ".join(filter(None, (found.why, unusual(margin))))
    if found.verdict == "equivalent" and not known:
        return f"equivalent within {margin:.2g}"
    return f"{found.verdict} ({known})" if known else found.verdict


def dollars(report: Report) -> list[Fact]:
    """What a reference node's worth costs."""
    price = report.price
    if price is None:
        return []
    if not price.per_reference:
        return [Fact("per reference node", f"{ABSENT} (no ratio to a baseline)", "faint")]
    return [_per_reference(each) for each in price.per_reference]


def _per_reference(price: PerReference) -> Fact:
    interval = ", no interval" if price.interval is None else f" {span_of_money(price.interval)}"
    if price.band is not None:
        interval = f" {span_of_money(price.band)}{_estimated(price.checked)}"
    doubt = f"; indicative: {', '.join(price.indicative)}" if price.indicative else ""
    tone: Tone = "fair" if doubt or price.interval is None else "strong"
    return Fact(f"$ per {price.name} node", f"{figure(price.value)} ${interval}, lower is better{doubt}", tone)


def span_of_money(interval: Interval | EstimateBand) -> str:
    """``[low, high]``; estimates are labelled."""
    return (
        f"[{figure(interval.low)}, {figure(interval.high)}]{' estimated' if isinstance(interval, EstimateBand) else ''}"
    )


def ratios_of_scores(report: Report) -> list[Fact]:
    """The score ratios, with each baseline's name and score."""
    return [fact for other in report.comparisons for fact in _ratio(other, report.score_unit)]


def _levels(other: Comparison, unit: str) -> str:
    """Both scores over the tests that the ratio is over, and which these are."""
    ours, theirs = other.levels or (other.run_score or 0.0, other.score or 0.0)
    names = ", ".join(label.partition(".")[2] or label for label in other.counted)
    which = "the same tests" if other.status == "complete" else f"over {other.tests} of {other.of} tests: {names}"
    many = "" if other.interval is None else " over many repeats"
    return f"{figure(ours)} against {figure(theirs)} {unit} per device{many}, {which}"


def ratio_text(part: SubRatio) -> str:
    """The ratio over some of the tests."""
    return f"{part.ratio or 0.0:.3f}" + (f" {span(part.band)}" if part.band else "")


def _ratio(other: Comparison, unit: str) -> list[Fact]:
    name = f"{other.name} ({other.provenance.kind}; {other.provenance.hardware})"
    if other.score is None or other.ratio is None:
        return [Fact("baseline", f"{name}: no weighted test in common, no ratio", "fair")]
    doubt = f" (indicative: {', '.join(other.indicative)})" if other.indicative else ""
    over = "" if other.status == "complete" else f", partial: over {other.tests} of {other.of} tests"
    per_node = "" if other.ratio_per_node is None else f"; per node {other.ratio_per_node:.3f}"
    guess = f" {span(other.band)}{_estimated(other.checked)}" if other.band else ""
    return [
        Fact("baseline", name),
        Fact("scores compared", _levels(other, unit)),
        Fact(
            "ratio of the scores",
            f"{other.ratio:.3f}{guess} per device{per_node}{over}{doubt}",
            "fair" if over or doubt else "strong",
        ),
    ]
