"""Statements on the ratios to baselines, and on what they rest on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.reference import unit_told
from milabench_ng.analysis.statistics.effects import Effect, unusual
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.model.shipped import baselines_of
from milabench_ng.model.units import counted, four_digits
from milabench_ng.present.render.cells import Fact, Tone, covered, money, narrowed_by, tone_of_verdict
from milabench_ng.present.render.columns import span
from milabench_ng.report.report import Report


def ratios(report: Report) -> Iterator[Fact]:
    """The ratio to each baseline with its verdict."""
    for other in report.comparisons:
        yield Fact(f"ratio to {other.name}", *_verdict_text(report, other))
        yield Fact("baseline", f"{other.name} ({other.provenance.kind}; {other.provenance.hardware})")


def charged_ratios(report: Report) -> Iterator[Fact]:
    """The scores of both sides over the tests of each ratio, and their ratio: charged for spread and failures."""
    for other in report.comparisons:
        if other.charged_ratio is not None:
            unit = f" {unit_told(report.score_unit)}" if other.status == "complete" else ""
            yield Fact(f"scores with penalties, {other.name}", _levels(other, other.charged_ratio, unit))


def _verdict_text(report: Report, other: Comparison) -> tuple[str, Tone]:
    """The ratio with all qualifications."""
    found = other.effect
    if other.status == "none":
        return f"none: {why_no_ratio(report, other)}", "fair"
    if found.ratio is None:
        return f"{other.ratio or 0.0:.3f}, no interval: {why_no_interval(other)}", "fair"
    text = f"{found.ratio.value:.3f} {span(found.ratio)}: {_verdict(found, other.margin)}"
    return f"{text}; {narrowed_by(found.repeats_needed)}", tone_of_verdict(found.verdict)


def why_no_ratio(report: Report, other: Comparison) -> str:
    """Why no weighted test counts: the baseline is of another suite, or what most tests lack."""
    if other.other_suites:
        ours = report.summary.known_suites
        fitting = ", ".join(baselines_of(ours)) or "none; a result folder of it will do"
        theirs = " and ".join(other.other_suites)
        return f"it is of suite {theirs}. Shipped baselines of {' and '.join(ours)}: {fitting}"
    if not other.of and (known := {label: row.perf_ratio for label, row in other.rows.items() if row.perf_ratio}):
        by_ratio = [f"{ratio:.3f} ({name_of_row(label)})" for label, ratio in sorted(known.items(), key=itemgetter(1))]
        ends = " to ".join(by_ratio[:: max(1, len(by_ratio) - 1)])
        aside = _aside([other.rows[label].set_aside for label in known])
        return f"{ends}, {counted(len(known), 'test')}{aside}; without weights there is no ratio over all"
    if not other.of:
        return "no test has a rate on both sides"
    lacking = Counter(other.reasons.values()).most_common(2)
    why = ", ".join(f"{_few(reason)} in {times} of {other.of} tests" for reason, times in lacking)
    rest = other.of - sum(times for _, times in lacking)
    others = f", other reasons in {rest}" if why and rest else ""
    return f"no weighted test can be compared{': ' if why else ''}{why}{others}"


def _aside(reasons: Sequence[str]) -> str:
    """How many tests do not count, as their verdicts say; ``reasons``: of each test, empty for one that counts."""
    given = [reason for reason in reasons if reason]
    many = "" if len(given) == len(reasons) else f"{len(given)} "
    return f", {many}not counted ({_few(given[0])})" if given else ""


def _few(reason: str) -> str:
    """The first differences of many, whose table stands below."""
    first, *others = reason.split("; ")
    return f"{first} (and {len(others)} more)" if others else first


def why_no_interval(other: Comparison) -> str:
    """What both sides lack, or the baseline alone."""
    if other.effect.why == "no repeats are recorded":
        return f"the {other.provenance.kind} baseline has no per-repeat data"
    return other.effect.why


def _verdict(found: Effect, margin: float) -> str:
    known = "; ".join(filter(None, (found.why, unusual(margin))))
    if found.verdict == "equivalent" and not known:
        return f"equivalent within ±{100 * margin:.2g}%"
    return f"{found.verdict} ({known})" if known else found.verdict


def span_of_money(interval: Interval) -> str:
    """``[low, high]``."""
    return f"[{money(interval.low)}, {money(interval.high)}]"


def _levels(other: Comparison, ratio: float, unit: str) -> str:
    """Both scores over the tests that the ratio is over, and which these are."""
    names = ", ".join(map(name_of_row, other.counted))
    which = "over the same tests" if other.status == "complete" else f"over {covered(other)}: {names}"
    ours, theirs = four_digits(other.run_score or 0.0), four_digits(other.score or 0.0)
    return (
        f"{ours} vs. {theirs}{unit} per device, ratio {ratio:.3f}; both with penalties for variance and "
        f"failures, {which}"
    )
