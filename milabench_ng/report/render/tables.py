"""The tables of a report other than the test table, as values; the format modules lay them out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.render.cells import Cell, Tone, number, one_decimal, ratio_text, tone_of_verdict, whole
from milabench_ng.report.render.columns import half_width_pct, span
from milabench_ng.report.render.device_tables import host_pace_section, matrix, stragglers
from milabench_ng.report.render.sections import Heading, Section
from milabench_ng.report.report import Report
from milabench_ng.report.scoring.comparison import Comparison
from milabench_ng.report.scoring.scaling import ScalingCurve
from milabench_ng.report.scoring.slow_devices import MEASURES
from milabench_ng.report.statistics.effects import unusual

_BAR = 40


def before_tests(report: Report) -> tuple[Section, ...]:
    """What to know before reading the test table: the differences between two results, and what does not count."""
    return tuple(_before(report))


def _before(report: Report) -> Iterator[Section]:
    for other in report.comparisons:
        if other.differences:
            yield _differences(other)
        if other.reasons:
            yield _left_out(other)


def after_tests(report: Report) -> tuple[Section, ...]:
    """All other tables with data."""
    return tuple(_after(report))


def _after(report: Report) -> Iterator[Section]:
    if report.sub_scores:
        yield _sub_scores(report)
    for other in report.comparisons:
        if other.subsets:
            yield _sub_ratios(other)
    for curve in report.scaling:
        yield _scaling(curve)
    if report.gpus is not None:
        if report.gpus.stragglers or report.gpus.overall:
            yield stragglers(report.gpus)
        if report.show_gpus:
            yield from (matrix(report.gpus, measure) for measure in MEASURES)
    if report.summary.host_pace is not None:
        yield host_pace_section(report.summary.host_pace)
    if report.flags:
        yield _flags(report)
    if report.failed or report.summary.problems:
        yield _failures(report)


def _differences(other: Comparison) -> Section:
    return Section(
        key=f"differences-{other.name}",
        title=f"what differs from {other.name}",
        headings=(
            Heading("what"),
            Heading("this run"),
            Heading("baseline"),
            Heading("tests"),
            Heading("the ratio", tone=_tone_of_use),
        ),
        rows=tuple(
            (
                one.what,
                one.run,
                one.baseline,
                ", ".join(one.tests) or "all",
                one.ratio,
            )
            for one in sorted(other.differences, key=lambda each: _USES.index(each.ratio))
        ),
    )


_USES = ("suppressed", "not counted", "counted")
"""Most important first."""


def _tone_of_use(cell: Cell) -> Tone:
    tones: dict[Cell, Tone] = {"suppressed": "bad", "not counted": "fair"}
    return tones.get(cell, "plain")


def _left_out(other: Comparison) -> Section:
    counted = [label.partition(".")[2] for label in other.counted]
    tests: dict[str, list[str]] = {}
    for label, why in other.reasons.items():
        tests.setdefault(why, []).append(label.partition(".")[2] or label)
    return Section(
        key=f"left-out-{other.name}",
        title=f"what the ratio to {other.name} leaves out",
        headings=(Heading("tests"), Heading("why")),
        rows=tuple((", ".join(names), why) for why, names in tests.items()),
        notes=(f"{len(counted)} of {other.of} weighted tests count: {', '.join(counted) or 'none'}",),
    )


def _sub_scores(report: Report) -> Section:
    return Section(
        key="sub-scores",
        title="what decided the score",
        headings=(
            Heading("how"),
            Heading("tests", "", whole, True),
            Heading("of the weights", "%", one_decimal, True),
            Heading("per device", report.score_unit, number, True),
            Heading("+-95 %", "%", one_decimal, True),
            Heading("no value or interval because"),
        ),
        rows=tuple(
            (
                part.name,
                len(part.labels),
                part.weight_pct,
                part.per_device,
                half_width_pct(part.interval),
                part.why or None,
            )
            for part in report.sub_scores
        ),
    )


def _sub_ratios(other: Comparison) -> Section:
    return Section(
        key=f"sub-ratios-{other.name}",
        title=f"what decided the ratio to {other.name}",
        headings=(
            Heading("over"),
            Heading("tests", "", whole, True),
            Heading("ratio of scores", "", ratio_text, True),
            Heading("ratio of throughputs", "", ratio_text, True),
            Heading("95 % interval"),
            Heading("verdict", unusual(other.margin), tone=tone_of_verdict),
            Heading("no verdict because"),
        ),
        rows=tuple(
            (
                part.name,
                len(part.labels),
                part.ratio,
                part.effect.ratio.value if part.effect.ratio else None,
                span(part.known),
                part.effect.verdict,
                part.effect.why or None,
            )
            for part in other.subsets
        ),
    )


def _scaling(curve: ScalingCurve) -> Section:
    best = max(step.aggregate for step in curve.steps)
    knee = (
        "every further device adds more than half of what one alone does"
        if curve.knee is None
        else f"the knee is at {curve.knee}: the next adds less than half"
    )
    return Section(
        key=f"scaling-{curve.test}",
        title=f"scaling of {curve.test}",
        headings=(
            Heading("devices", "", whole, True),
            Heading("together", f"{curve.unit}/s", number, True),
            Heading("each", f"{curve.unit}/s", number, True),
            Heading("efficiency", "%", one_decimal, True),
            Heading("slowest rank"),
            Heading("against the mean", "%", one_decimal, True),
            Heading("chart"),
        ),
        rows=tuple(
            (
                step.devices,
                step.aggregate,
                step.per_device,
                None if step.efficiency is None else 100 * step.efficiency,
                None if step.slowest is None else f"device {step.slowest}",
                step.slowest_pct,
                "█" * round(_BAR * step.aggregate / best),
            )
            for step in curve.steps
        ),
        notes=(knee,),
    )


def _flags(report: Report) -> Section:
    return Section(
        key="flags",
        title="odd launches (they count)",
        headings=(Heading("launch"), Heading("what", tone=lambda _: "fair"), Heading("what is known")),
        rows=tuple((f"{test} J{flag.job_id}", flag.kind, flag.detail) for test, flag in report.flags),
    )


def _failures(report: Report) -> Section:
    rows = [(f"{test} J{failed.job_id}", failed.cause, failed.detail) for test, failed in report.failed]
    rows += [(problem.file, "unreadable", problem.reason) for problem in report.summary.problems]
    return Section(
        key="failures",
        title="failed launches",
        headings=(Heading("failed launch"), Heading("cause", tone=lambda _: "bad"), Heading("what is known")),
        rows=tuple((name, cause, detail.strip().partition("\n")[0]) for name, cause, detail in rows),
    )
