"""The charts of a whole report: test ratios, tests by device, the worst drift, scaling. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.analysis.launch.timeline import Course, worst_drift
from milabench_ng.analysis.scoring.scaling import ScalingCurve
from milabench_ng.analysis.scoring.slow_devices import GpuComparison
from milabench_ng.present.html.figures import (
    DASHED,
    FEWEST_POINTS,
    LOUD,
    Chart,
    Key,
    Label,
    Part,
    Segment,
    cell,
    counts,
    faded,
    line_key,
    marked_line,
    names,
    numbers,
    plot,
    style,
)
from milabench_ng.present.html.forest_chart import forest_view
from milabench_ng.present.html.per_test_charts import course_view
from milabench_ng.report.report import Report

_ROW = 30
"""Height of a row in pixels."""
_SLOW_STANDS_OUT = ((0.0, 0.75), (0.6, 0.2), (0.8, 0.0))
"""Opacity of cells from slow to fast: what is healthy has the colour of the page, so that only the slow is loud."""
_CELLS_WITH_NUMBERS = 12
"""The most devices for which a cell has room for its number."""


def summary_charts(report: Report, courses: Sequence[Course]) -> Iterator[Chart]:
    """The charts for which this report has data, in the order of the questions that they answer."""
    views = [
        view
        for part in report.scored
        for index, other in enumerate(part.comparisons)
        if (view := forest_view(part, other, index, f"{part.summary.suite}: " if report.suites else ""))
    ]
    if views:
        yield Chart(
            key="forest",
            wide=True,
            title="ratio of every test to the baseline",
            reading="Left: the ratio of throughputs with its 95% interval (a larger mark has more weight, "
            "its shape shows the bottleneck, a hollow one is based on an estimated or published row, a pale one "
            "does not count). Right, for tests with a weight: "
            "the contribution of each test to the ratio of all.",
            chooses="baseline",
            views=tuple(views),
        )
    if report.gpus is not None:
        yield _map(report.gpus, f"{report.summary.suite}.")
    worst = worst_drift(courses)
    if worst is not None:
        yield _drift(worst, courses)
    curves = [curve for curve in report.scaling if len(curve.steps) >= FEWEST_POINTS]
    if curves:
        yield _scaling(curves)


def _map(gpus: GpuComparison, prefix: str) -> Chart:
    rows = [row for row in gpus.mean if sum(share is not None for share in row.relative) > 1]
    slowest = min([0.9, *(share for row in rows for share in row.relative if share is not None)])
    slow = {(at.test, at.device) for at in gpus.stragglers}
    cells = [
        cell(
            (column, line),
            LOUD,
            _opacity(share, slowest),
            text=f"{100 * share:.1f}" + ("\nslow" if (row.test, device) in slow else ""),
            title=f"{row.test.removeprefix(prefix)}, device {device}: {100 * share:.1f}% of the best",
        )
        for line, row in enumerate(rows)
        for column, (device, share) in enumerate(zip(gpus.devices, row.relative, strict=True))
        if share is not None
    ]
    few = len(gpus.devices) <= _CELLS_WITH_NUMBERS
    view = plot(
        msgspec.structs.replace(names(gpus.devices), title="device"),
        names([row.test.removeprefix(prefix) for row in rows], down=True),
        cells if few else (msgspec.structs.replace(one, text=one.text.partition("\n")[2]) for one in cells),
        keys=(_shade(slowest + (1 - slowest) * share, slowest) for share in (1.0, 0.5, 0.0)),
        height=_ROW * len(rows),
    )
    return Chart(
        key="map",
        title="tests by device",
        reading="The mean rate of each device, relative to the best device of the same test (%). A device that is "
        "slower than chance explains is marked slow.",
        views=(view,),
    )


def _opacity(share: float, slowest: float) -> float:
    return faded(_SLOW_STANDS_OUT, (share - slowest) / (1 - slowest))


def _shade(share: float, slowest: float) -> Key:
    """An entry of the legend."""
    return Key(name=f"{100 * share:.0f}%", sample=cell((0, 0), LOUD, _opacity(share, slowest)))


def _drift(worst: Course, courses: Sequence[Course]) -> Chart:
    batch = [at for at in courses if (at.label, at.batch_key) == (worst.label, worst.batch_key)]
    return Chart(
        key="drift",
        title=f"the worst drift: {worst.label}, repeat {worst.run}",
        reading=f"Of all launches, the rate of J{worst.job_id} (device {worst.device}) changed most from the first to "
        f"the last quarter after settling: {worst.change or 0.0:+.1%}. All tenants of that moment are shown; the "
        "averaging window is shaded.",
        views=(course_view("", batch),),
    )


def _scaling(curves: Sequence[ScalingCurve]) -> Chart:
    widest = counts([step.devices for curve in curves for step in curve.steps], "devices")
    parts: list[Part] = [Segment(begin=(1, 100), end=(max(tick.at for tick in widest.ticks), 100), look=DASHED)]
    keys = [line_key("ideal", DASHED)]
    for index, curve in enumerate(curves):
        points = [(float(step.devices), 100 * (step.efficiency or 0.0)) for step in curve.steps]
        parts += marked_line(
            points, [f"{at:.0f} devices: {value:.1f} %" for at, value in points], style(index), curve.test
        )
        parts += (Label(at=at, text=f"{at[1]:.1f}", shift=(0, 18)) for at in points)
        keys.append(line_key(curve.test, style(index)))
    efficiencies = [100 * (step.efficiency or 0.0) for curve in curves for step in curve.steps]
    efficiency = numbers([*efficiencies, 100.0], "efficiency (%)", from_zero=True)
    return Chart(
        key="scaling",
        title="scaling efficiency",
        reading="The rate of each device when several work together, relative to the smallest number of devices: 100% "
        "on an ideal machine.",
        views=(plot(widest, efficiency, parts, keys=keys),),
    )
