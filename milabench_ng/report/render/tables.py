"""The tables of a report other than the test table, as values; the format modules lay them out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.render.cells import (
    Cell,
    Tone,
    number,
    one_decimal,
    percent,
    points,
    ratio_text,
    short_name,
    tone_of_verdict,
    whole,
)
from milabench_ng.report.render.columns import half_width_pct, span
from milabench_ng.report.render.device_tables import host_pace_section, matrix, stragglers
from milabench_ng.report.render.sections import Column, Section, section
from milabench_ng.report.report import Line, Report
from milabench_ng.report.scoring.comparison import Comparison
from milabench_ng.report.scoring.scaling import ScalingCurve
from milabench_ng.report.scoring.slow_devices import MEASURES
from milabench_ng.report.statistics.effects import unusual

_BAR = 40


def other_tables(report: Report) -> tuple[Section, ...]:
    """All tables with data: what differs from the baselines and what does not count, then what explains the rest."""
    return tuple(_tables(report))


def _tables(report: Report) -> Iterator[Section]:
    for other in report.comparisons:
        if other.differences:
            yield _differences(other)
        if other.reasons:
            yield _left_out(other)
    if any(line.derived for line in report.lines):
        yield _suite_units(report)
    if any(line.row.latency for line in report.lines):
        yield _latency(report)
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
    return section(
        f"differences-{other.name}",
        f"what differs from {other.name}",
        sorted(other.differences, key=lambda each: _USES.index(each.ratio)),
        Column("what", value=lambda one: one.what),
        Column("this run", value=lambda one: one.run),
        Column("baseline", value=lambda one: one.baseline),
        Column("tests", value=lambda one: ", ".join(map(short_name, one.tests)) or "all"),
        Column("the ratio", tone=_tone_of_use, value=lambda one: one.ratio),
    )


_USES = ("suppressed", "not counted", "counted")
"""Most important first."""


def _tone_of_use(cell: Cell) -> Tone:
    tones: dict[Cell, Tone] = {"suppressed": "bad", "not counted": "fair"}
    return tones.get(cell, "plain")


def _left_out(other: Comparison) -> Section:
    counted = [short_name(label) for label in other.counted]
    tests: dict[str, list[str]] = {}
    for label, why in other.reasons.items():
        tests.setdefault(why, []).append(short_name(label))
    return section(
        f"left-out-{other.name}",
        f"what the ratio to {other.name} leaves out",
        tests.items(),
        Column("tests", value=lambda item: ", ".join(item[1])),
        Column("why", value=lambda item: item[0]),
        notes=(f"{len(counted)} of {other.of} weighted tests count: {', '.join(counted) or 'none'}",),
    )


def _suite_units(report: Report) -> Section:
    return section(
        "suite-units",
        "in the units of the suite",
        ((line, each) for line in report.lines for each in line.derived),
        Column("test", value=lambda item: _brief(item[0])),
        Column("unit", value=lambda item: item[1].unit),
        Column("perf", "", number, True, value=lambda item: item[1].value),
        Column("formula", "rate: items/s", value=lambda item: item[1].formula),
    )


def _latency(report: Report) -> Section:
    return section(
        "latency",
        "latency of a batch",
        ((line, line.row.latency) for line in report.lines if line.row.latency),
        Column("test", value=lambda item: _brief(item[0])),
        Column("batches", "", whole, True, value=lambda item: item[1].batches),
        Column("p50", "ms", number, True, value=lambda item: item[1].p50_ms),
        Column("p99", "ms", number, True, value=lambda item: item[1].p99_ms),
        notes=("from the call to the outputs on the host, in the windows of all launches",),
    )


def _brief(line: Line) -> str:
    """The test's name without that of the suite."""
    return short_name(line.scored.test)


def _sub_scores(report: Report) -> Section:
    return section(
        "sub-scores",
        "what decided the score",
        report.sub_scores,
        Column("how", value=lambda part: part.name),
        Column("tests", "", whole, True, value=lambda part: len(part.labels)),
        Column("of the weights", "%", one_decimal, True, value=lambda part: part.weight_pct),
        Column("per device", report.score_unit, points, True, value=lambda part: part.per_device),
        Column("+-95 %", "%", one_decimal, True, value=lambda part: half_width_pct(part.interval)),
        Column("no value or interval because", value=lambda part: part.why or None),
    )


def _sub_ratios(other: Comparison) -> Section:
    return section(
        f"sub-ratios-{other.name}",
        f"what decided the ratio to {other.name}",
        other.subsets,
        Column("over", value=lambda part: part.name),
        Column("tests", "", whole, True, value=lambda part: len(part.labels)),
        Column("ratio of scores", "", ratio_text, True, value=lambda part: part.ratio),
        Column(
            "ratio of throughputs",
            "",
            ratio_text,
            True,
            value=lambda part: part.effect.ratio.value if part.effect.ratio else None,
        ),
        Column("95 % interval", value=lambda part: span(part.known)),
        Column("verdict", unusual(other.margin), tone=tone_of_verdict, value=lambda part: part.effect.verdict),
        Column("no verdict because", value=lambda part: part.effect.why or None),
    )


def _scaling(curve: ScalingCurve) -> Section:
    best = max(step.aggregate for step in curve.steps)
    knee = "every further device adds more than half of what one alone does"
    if curve.knee is not None:
        knee = f"the knee is at {curve.knee}: the next adds less than half"
    elif curve.doubtful is not None:
        knee = f"the knee may be at {curve.doubtful}: these repeats do not tell whether the next adds less than half"
    return section(
        f"scaling-{curve.test}",
        f"scaling of {curve.test}",
        curve.steps,
        Column("devices", "", whole, True, value=lambda step: step.devices),
        Column("together", f"{curve.unit}/s", number, True, value=lambda step: step.aggregate),
        Column("each", f"{curve.unit}/s", number, True, value=lambda step: step.per_device),
        Column("efficiency", "%", one_decimal, True, value=lambda step: percent(step.efficiency)),
        Column("slowest rank", value=lambda step: None if step.slowest is None else f"device {step.slowest}"),
        Column("against the mean", "%", one_decimal, True, value=lambda step: step.slowest_pct),
        Column("chart", value=lambda step: "█" * round(_BAR * step.aggregate / best)),
        notes=(knee,),
    )


def _flags(report: Report) -> Section:
    return section(
        "flags",
        "odd launches (they count)",
        report.flags,
        Column("launch", value=lambda item: f"{item[0]} J{item[1].job_id}"),
        Column("what", tone=lambda _: "fair", value=lambda item: item[1].kind),
        Column("what is known", value=lambda item: item[1].detail),
    )


def _failures(report: Report) -> Section:
    rows = [(f"{test} J{failed.job_id}", failed.cause, failed.detail) for test, failed in report.failed]
    rows += [(problem.file, "unreadable", problem.reason) for problem in report.summary.problems]
    return section(
        "failures",
        "failed launches",
        rows,
        Column("failed launch", value=lambda row: row[0]),
        Column("cause", tone=lambda _: "bad", value=lambda row: row[1]),
        Column("what is known", value=lambda row: row[2].strip().partition("\n")[0]),
    )
