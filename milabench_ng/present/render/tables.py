"""The tables of a report other than the test table, as values; the format modules lay them out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.rate_curves import CurvePoint, RateCurve
from milabench_ng.analysis.scoring.reference import unit_told
from milabench_ng.analysis.scoring.scaling import ScalingCurve
from milabench_ng.analysis.scoring.slow_devices import MEASURES, GpuComparison
from milabench_ng.analysis.scoring.subsets import SubScore
from milabench_ng.analysis.statistics.effects import unusual
from milabench_ng.analysis.summary.derived_rates import Sweep
from milabench_ng.analysis.summary.summary import Latency, flag_word, name_of_row
from milabench_ng.model.grouping import gathered
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import (
    Cell,
    device_word,
    exact_ratio,
    half_width,
    number,
    one_decimal,
    percent,
    place_told,
    points,
    ratio_text,
    tone_of_verdict,
    toned,
    whole,
)
from milabench_ng.present.render.columns import half_width_pct, quantiles, span
from milabench_ng.present.render.device_tables import host_pace_section, matrix, stragglers
from milabench_ng.present.render.look_at import not_proven, repeated
from milabench_ng.present.render.sections import Column, Section, section
from milabench_ng.records.work import WorkDifference
from milabench_ng.report.report import Report

_BAR = 40


def other_tables(report: Report) -> Iterator[Section]:
    """All tables with data: what differs from the baselines and what does not count, then what explains the rest."""
    for other in report.comparisons:
        if other.differences and not other.other_suites:
            yield differing(other.name, other.differences, [line.scored.test for line in report.lines])
    for of, part in _named(report):
        yield from (_left_out(other, of) for other in part.comparisons if other.reasons and not other.other_suites)
    if any(line.derived for line in report.lines):
        yield _suite_units(report)
    if any(line.row.latency for line in report.lines):
        yield _latency(report)
    if any(line.row.item_latency for line in report.lines):
        yield _item_latency(report)
    yield from map(_rate_curve, report.rate_curves)
    yield from (_sweep(name_of_row(line.scored.test), each) for line in report.lines for each in line.sweeps)
    for of, part in _named(report):
        if part.sub_scores:
            yield _sub_scores(part, of)
        yield from (_sub_ratios(other, of) for other in part.comparisons if other.subsets)
        if any(one.left_out for one in part.sub_scores):
            yield _leave_one_out(part, of)
    for curve in report.scaling:
        yield _scaling(curve)
    if report.shared_devices:
        yield _shared_devices(report)
    if report.gpus is not None:
        behind = report.gpus.behind
        if behind or report.gpus.stragglers or report.gpus.overall:
            word = device_word(report.summary)
            yield stragglers(report.gpus, not_proven(report.summary, behind, word, report.profile) if behind else "")
        if report.show_gpus:
            yield from _matrices(report.gpus, repeated(report.profile, report.gpus))
    if report.summary.host_pace is not None:
        yield host_pace_section(report.summary.host_pace)
    if report.flags:
        yield _flags(report)
    if report.failed or report.summary.problems:
        yield _failures(report)


def _matrices(gpus: GpuComparison, again: str) -> Iterator[Section]:
    """Of one repeat, all measures are the mean."""
    yield matrix(gpus, "mean", again)
    yield from (matrix(gpus, measure) for measure in MEASURES[1:] if gpus.rows(measure) != gpus.mean)


def _named(report: Report) -> Iterator[tuple[str, Report]]:
    """The reports that have the scores, each with what to add to a title: the suite, if there are several."""
    yield from ((f" of {part.summary.suite}" if report.suites else "", part) for part in report.scored)


def differing(
    name: str, found: Iterable[WorkDifference], labels: Sequence[str], sides: tuple[str, str] = ("this run", "baseline")
) -> Section:
    """In what one of two ``sides`` differs from the other, which has a ``name``. ``labels``: all tests of the first."""
    ours, theirs = sides
    return section(
        f"differences-{name}",
        f"differences from {name}",
        sorted(found, key=lambda each: _USES.index(each.ratio)),
        Column("difference", value=lambda one: one.what),
        Column(ours, value=lambda one: one.run),
        Column(theirs, value=lambda one: one.baseline),
        Column("tests", value=lambda one: _concerned(one.tests, labels)),
        Column(
            "effect on ratio",
            tone=toned({"suppressed": "bad", "not counted": "fair"}),
            value=lambda one: one.ratio,
        ),
    )


def _name(label: Cell) -> str:
    """A test without its suite, for people; files have the key of the test table."""
    return name_of_row(str(label))


def _concerned(tests: Sequence[str], labels: Sequence[str]) -> str:
    """The names of ``tests``, or what these are without, whichever is shorter."""
    if not tests or {*tests} == {*labels}:
        return "all"
    others = [label for label in labels if label not in tests]
    if len(others) < len(tests) // 2:
        return f"all but {', '.join(map(name_of_row, others))}"
    return ", ".join(map(name_of_row, tests))


_USES = ("suppressed", "not counted", "counted")
"""Most important first."""


def _left_out(other: Comparison, of: str) -> Section:
    tests = gathered((why, name_of_row(label)) for label, why in other.reasons.items())
    return section(
        f"left-out-{other.name}{of}",
        f"tests excluded from the ratio{of} to {other.name}",
        tests.items(),
        Column("tests", value=lambda item: ", ".join(item[1])),
        Column("why", value=lambda item: item[0]),
        notes=(f"{len(other.counted)} of {other.of} weighted tests count",),
    )


def _suite_units(report: Report) -> Section:
    return section(
        "suite-units",
        "rates in the suite's own units",
        ((line, each) for line in report.lines for each in line.derived),
        Column("test", show=_name, value=lambda item: item[0].scored.test),
        Column("unit", value=lambda item: item[1].unit),
        Column("perf", "", number, True, value=lambda item: item[1].value),
        Column("formula", "rate: items/s", value=lambda item: item[1].formula),
        detail=True,
    )


def _latency(report: Report) -> Section:
    return section(
        "latency",
        "latency per batch",
        ((line, line.row.latency) for line in report.lines if line.row.latency),
        Column("test", show=_name, value=lambda item: item[0].scored.test),
        Column("batches", "", whole, True, value=lambda item: item[1].batches),
        *quantiles(lambda item: item[1]),
        notes=("measured from the call until the outputs are on the host, over the averaging windows of all launches",),
        detail=True,
    )


def _item_latency(report: Report) -> Section:
    return section(
        "item-latency",
        "latency per item",
        ((line, *each) for line in report.lines for each in line.row.item_latency.items()),
        Column("test", show=_name, value=lambda item: item[0].scored.test),
        Column("what", value=lambda item: item[1]),
        Column("items", "", whole, True, value=lambda item: item[2].batches),
        *quantiles(lambda item: item[2]),
        notes=("over the averaging windows of all launches",),
        detail=True,
    )


def _rate_curve(curve: RateCurve) -> Section:
    timed = sorted({name for point in curve.points for name in point.item_latency})
    return section(
        f"curve-{curve.name}-{curve.over}",
        f"{curve.name} by {curve.over}",
        curve.points,
        Column(curve.over, value=lambda point: point.at),
        Column("test", show=_name, value=lambda point: point.test),
        Column("perf", f"{curve.unit}/s", number, True, value=lambda point: point.perf),
        Column(curve.against, "", number, True, value=lambda point: point.against),
        *(column for name in timed for column in quantiles(_timed(name), f"{name} ")),
    )


def _sweep(test: str, sweep: Sweep) -> Section:
    return section(
        f"sweep-{test}-{sweep.over}",
        f"{test} by {sweep.over}",
        sweep.points,
        Column(sweep.over, "", lambda at: place_told(float(at or 0), sweep.over), True, value=lambda point: point.at),
        *(
            Column(unit, "", number, True, value=lambda point, unit=unit: point.values.get(unit))  # type: ignore[misc]
            for unit in sweep.units
        ),
        detail=True,
    )


def _timed(name: str) -> Callable[[CurvePoint], Latency | None]:
    return lambda point: point.item_latency.get(name)


def _sub_scores(report: Report, of: str) -> Section:
    return section(
        f"sub-scores{of}",
        f"score{of} by group",
        (part for part in report.sub_scores if not part.left_out),
        Column("subset", value=lambda part: _subset(part.name)),
        Column("tests", "", whole, True, value=lambda part: len(part.labels)),
        Column("share of weight", "%", one_decimal, True, value=lambda part: part.weight_pct),
        _per_device(report),
        Column("95% CI", "±%", half_width, True, value=lambda part: half_width_pct(part.interval)),
        Column("why missing", value=lambda part: part.why or None),
        detail=True,
    )


def _per_device(report: Report) -> Column[SubScore]:
    return Column("per device", unit_told(report.score_unit), points, True, value=lambda part: part.per_device)


def _subset(name: str) -> str:
    """A subset for people."""
    return name.replace("bound by ", "bottleneck ")


def _sub_ratios(other: Comparison, of: str) -> Section:
    return section(
        f"sub-ratios-{other.name}{of}",
        f"ratio{of} to {other.name} by group",
        (part for part in other.subsets if not part.left_out),
        Column("subset", value=lambda part: _subset(part.name)),
        Column("tests", "", whole, True, value=lambda part: len(part.labels)),
        Column("ratio", "", exact_ratio, True, value=lambda part: part.ratio),
        Column("95% CI", value=lambda part: span(part.effect.ratio)),
        Column("verdict", unusual(other.margin), tone=tone_of_verdict, value=lambda part: part.effect.verdict),
        Column("why no verdict", value=lambda part: part.effect.why or None),
        detail=True,
    )


def _leave_one_out(report: Report, of: str) -> Section:
    """What single tests decide: the score without each, and the ratios to the baselines."""
    places = {label: place for place, label in enumerate(report.summary.tests)}
    return section(
        f"leave-one-out{of}",
        f"score{of} without each test (leave-one-out)",
        sorted((part for part in report.sub_scores if part.left_out), key=lambda part: places.get(part.left_out, 0)),
        Column("without", show=_name, value=lambda part: part.left_out),
        Column("share of weight", "%", one_decimal, True, value=lambda part: part.weight_pct),
        _per_device(report),
        *map(_ratio_without, report.comparisons),
        detail=True,
    )


def _ratio_without(other: Comparison) -> Column[SubScore]:
    ratios = {part.left_out: part.ratio for part in other.subsets}
    return Column(f"ratio to {other.name}", "", exact_ratio, True, value=lambda part: ratios.get(part.left_out))


def _scaling(curve: ScalingCurve) -> Section:
    best = max(step.aggregate for step in curve.steps)
    knee = "every further device adds more than half of the rate of one device"
    if curve.knee is not None:
        knee = f"scaling flattens at {counted(curve.knee, 'device')}: the next step adds less than half"
    elif curve.doubtful is not None:
        knee = f"scaling may flatten at {counted(curve.doubtful, 'device')}: more repeats are needed to tell"
    return section(
        f"scaling-{curve.test}",
        f"scaling of {curve.test}",
        curve.steps,
        Column("devices", "", whole, True, value=lambda step: step.devices),
        Column(
            "all devices",
            f"{curve.unit}/s",
            number,
            True,
            value=lambda step: step.aggregate,
        ),
        Column(
            "per device",
            f"{curve.unit}/s",
            number,
            True,
            value=lambda step: step.per_device,
        ),
        Column("efficiency", "%", one_decimal, True, value=lambda step: percent(step.efficiency)),
        Column("slowest rank", value=lambda step: None if step.slowest is None else f"device {step.slowest}"),
        Column("vs. mean", "%", one_decimal, True, value=lambda step: step.slowest_pct),
        Column("chart", value=lambda step: "█" * round(_BAR * step.aggregate / best)),
        notes=(knee,),
    )


def _shared_devices(report: Report) -> Section:
    return section(
        "shared-devices",
        "tenants on each device",
        report.shared_devices,
        Column("test", show=_name, value=lambda line: line.test),
        Column("tenants", "", whole, True, value=lambda line: line.tenants),
        Column("sharing", value=lambda line: line.how or None),
        Column("node total", "", number, True, value=lambda line: line.node_total),
        Column("gain over fewest tenants", "", ratio_text, True, value=lambda line: line.gain),
        Column("each tenant", "", number, True, value=lambda line: line.each),
        Column("worst tenant", "", number, True, value=lambda line: line.worst),
        Column("unit", value=lambda line: f"{line.unit}/s"),
        *quantiles(lambda line: line.latency),
        notes=("no ratio where options, data or precision differ, such as a batch size set by memory class",),
    )


def _flags(report: Report) -> Section:
    return section(
        "flags",
        "anomalies (still counted)",
        report.flags,
        Column("launch", value=lambda item: f"{item[0]} J{item[1].job_id}"),
        Column("anomaly", tone=lambda _: "fair", value=lambda item: flag_word(item[1].kind)),
        Column("details", value=lambda item: item[1].detail),
        detail=True,
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
        Column("details", value=lambda row: row[2].strip().partition("\n")[0]),
    )
