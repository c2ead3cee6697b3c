"""The charts of a whole report: test ratios, tests by device, the worst drift, scaling. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench_ng.analysis.launch.timeline import Course, worst_drift
from milabench_ng.analysis.scoring.scaling import ScalingCurve
from milabench_ng.analysis.scoring.slow_devices import GpuComparison
from milabench_ng.present.html.figures import FEWEST_POINTS, INK, NEUTRAL, Chart, PlotTrace, View, label, layout, line
from milabench_ng.present.html.forest_chart import forest_view
from milabench_ng.present.html.per_test_charts import course_view
from milabench_ng.report.report import Report

_ROW = 30
"""Height of a row in pixels."""
_SLOW_STANDS_OUT = [[0, "rgba(213,94,0,0.75)"], [0.6, "rgba(213,94,0,0.2)"], [0.8, "rgba(213,94,0,0)"]]
_SLOW_STANDS_OUT += [[1, "rgba(213,94,0,0)"]]
"""From slow to fast: what is healthy has the colour of the page, so that only the slow is loud, by day and by night."""
_CELLS_WITH_NUMBERS = 12
"""The most devices for which a cell has room for its number."""


def summary_charts(report: Report, courses: Sequence[Course]) -> tuple[Chart, ...]:
    """The charts for which this report has data, in the order of the questions that they answer."""
    return tuple(_charts(report, courses))


def _charts(report: Report, courses: Sequence[Course]) -> Iterator[Chart]:
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
            reading="Left: the ratio of throughputs with its 95 % interval (a larger mark has more weight, "
            "its shape says what bounds the test, a hollow one stands on an estimated or published row, a pale one "
            "does not count). Right, for tests with a weight: "
            "the share of all that moves the logarithm of the ratio of the scores, upwards or downwards.",
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
    several = [row for row in gpus.mean if sum(share is not None for share in row.relative) > 1]
    rows = [[None if share is None else 100 * share for share in row.relative] for row in several]
    known = [share for row in rows for share in row if share is not None]
    slow = {(at.test, at.device) for at in gpus.stragglers}
    heat: PlotTrace = {
        "type": "heatmap",
        "x": [label(device) for device in gpus.devices],
        "y": [label(row.test.removeprefix(prefix)) for row in several],
        "z": rows,
        "zmin": min([90.0, *known]),
        "zmax": 100,
        "colorscale": _SLOW_STANDS_OUT,
        "colorbar": {"title": {"text": "%"}, "thickness": 12},
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "%{y}, device %{x}: %{z:.1f} % of the best<extra></extra>",
    }
    marks = [
        {
            "x": label(at.device),
            "y": label(at.test.removeprefix(prefix)),
            "text": "slow",
            "showarrow": False,
            "font": {"color": INK},
        }
        for at in gpus.stragglers
        if at.test is not None and len(gpus.devices) > _CELLS_WITH_NUMBERS
    ]
    if len(gpus.devices) <= _CELLS_WITH_NUMBERS:
        heat["text"] = [
            [_cell(share, (row.test, device) in slow) for device, share in zip(gpus.devices, row.relative, strict=True)]
            for row in several
        ]
        heat["texttemplate"] = "%{text}"
        heat["textfont"] = {"color": INK}
    height = 110 + _ROW * len(rows)
    yaxis = {"autorange": "reversed", "type": "category", "showgrid": False}
    xaxis = {"type": "category", "showgrid": False}
    return Chart(
        key="map",
        title="tests by device",
        reading="The mean rate of each device, relative to the best device of the same test (%). A device that is "
        "slower than chance explains is marked slow.",
        views=(
            View(
                data=(heat,),
                layout=layout("device", "", height=height, yaxis=yaxis, xaxis=xaxis, annotations=marks),
            ),
        ),
    )


def _cell(share: float | None, slow: bool) -> str:
    return "" if share is None else f"{100 * share:.1f}{' slow' if slow else ''}"


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
    traces = [
        line(
            [step.devices for step in curve.steps],
            [100 * (step.efficiency or 0.0) for step in curve.steps],
            curve.test,
            index,
            mode="lines+markers+text",
            text=[f"{100 * (step.efficiency or 0.0):.1f}" for step in curve.steps],
            textposition="bottom center",
            cliponaxis=False,
            hovertemplate="%{x} devices: %{y:.1f} %<extra></extra>",
        )
        for index, curve in enumerate(curves)
    ]
    widest = max(step.devices for curve in curves for step in curve.steps)
    ideal = line([1, widest], [100, 100], "ideal", 0, line={"color": NEUTRAL, "dash": "dash", "width": 1})
    return Chart(
        key="scaling",
        title="scaling efficiency",
        reading="The rate of each device when several work together, relative to the smallest number of devices: 100 % "
        "on an ideal machine.",
        views=(
            View(
                data=(ideal, *traces),
                layout=layout(
                    "devices",
                    "efficiency (%)",
                    xaxis={"dtick": 1 if widest <= 16 else 4},
                    yaxis={"rangemode": "tozero"},
                ),
            ),
        ),
    )
