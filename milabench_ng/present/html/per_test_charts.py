"""The charts of one test: every tenant's rate over time, its launches by device, how it scales. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from milabench_ng.analysis.launch.timeline import BatchKey, Course
from milabench_ng.analysis.scoring.scaling import ScalingCurve
from milabench_ng.model.grouping import grouped
from milabench_ng.present.html.figures import (
    FEWEST_POINTS,
    NEUTRAL,
    Chart,
    PlotTrace,
    View,
    band,
    label,
    layout,
    line,
    stretches,
    style,
)
from milabench_ng.report.report import Line

_BOX_FROM = 5
"""Fewest launches per device for which quartiles are drawn."""


def charts_of_test(at: Line, courses: Sequence[Course], curves: Sequence[ScalingCurve]) -> tuple[Chart, ...]:
    """The charts for which there is data; ``courses`` covers all tests."""
    return tuple(_charts(at, [course for course in courses if course.label == at.scored.test], curves))


def _charts(at: Line, courses: Sequence[Course], curves: Sequence[ScalingCurve]) -> Iterator[Chart]:
    test = at.scored.test
    batches = grouped(courses, lambda course: course.batch_key)
    if batches:
        yield Chart(
            key=f"course-{test}",
            title="throughput over time",
            reading="Every tenant that worked at the same moment, from the common start to the common stop; the "
            "averaging window is shaded.",
            chooses="repeat",
            views=tuple(course_view(name, batches[key]) for key, name in batch_names(batches).items()),
        )
    devices = _by_device(at)
    if sum(map(len, devices.values())) >= FEWEST_POINTS:
        yield _distribution(test, at.row.work.unit, devices)
    for curve in curves:
        if f"{curve.test}.{curve.steps[-1].devices}" == test and len(curve.steps) >= FEWEST_POINTS:
            yield _scaling(curve)


def batch_names(batches: Mapping[BatchKey, Sequence[Course]]) -> dict[BatchKey, str]:
    """What each batch of a test is called: its repeat, with what else tells it from the others. In their order."""
    sessions = {session for session, _, _ in batches}
    repeats = Counter((session, run) for session, run, _ in batches)
    return {
        (session, run, batch): f"{run}"
        + (f", device {batches[session, run, batch][0].device}" if repeats[session, run] > 1 else "")
        + (f" of {session}" if len(sessions) > 1 else "")
        for session, run, batch in sorted(batches)
    }


def course_view(name: str, batch: Sequence[Course]) -> View:
    """The tenants that ran at the same time."""
    traces = [
        stretches(
            at.edges,
            at.rates,
            f"device {at.device}{' (failed)' if at.failed else ''}",
            index,
            hovertemplate="%{x:.1f} s: %{y:.4g}",
        )
        for index, at in enumerate(batch)
    ]
    windows = [at.window for at in batch if at.window is not None]
    shaded = band(min(w[0] for w in windows), max(w[1] for w in windows), "averaged") if windows else {}
    y_title = f"{label(batch[0].unit)}/s"
    return View(
        name=name,
        data=tuple(traces),
        layout=layout("seconds since the common start", y_title, yaxis={"rangemode": "tozero"}, **shaded),
    )


def _by_device(at: Line) -> dict[str, list[float]]:
    """Rates by device, of launches over one device."""
    found: dict[str, list[float]] = defaultdict(list)
    if not at.row.work.scheme.spreads:
        scale = 1.0 if not at.row.train or not at.scored.perf else at.scored.perf / at.row.train.mean
        for job, perf in at.row.launches.items():
            found[job.partition("#")[0].partition(".")[2]].append(scale * perf)
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def _distribution(test: str, unit: str, devices: dict[str, list[float]]) -> Chart:
    return Chart(
        key=f"devices-{test}",
        title="launches by device",
        reading="Each mark is a launch; where a device has five or more, the box holds the middle half of them. The "
        "axis does not begin at 0.",
        views=(
            View(
                data=tuple(_box(index, *item) for index, item in enumerate(devices.items())),
                layout=layout("device", f"{label(unit)}/s", xaxis={"type": "category"}, showlegend=False, height=300),
            ),
        ),
    )


def _box(index: int, device: str, rates: Sequence[float]) -> PlotTrace:
    colour, symbol, _ = style(index)
    shared: PlotTrace = {
        "name": label(device),
        "x": [label(device)] * len(rates),
        "y": list(rates),
        "marker": {"color": colour, "symbol": symbol, "size": 7},
        "hovertemplate": "%{y:.4g}",
    }
    if len(rates) < _BOX_FROM:
        return {"type": "scatter", "mode": "markers", **shared}
    return {"type": "box", "boxpoints": "all", "pointpos": 0, "jitter": 0.4, **shared}


def _scaling(curve: ScalingCurve) -> Chart:
    devices = [step.devices for step in curve.steps]
    first = curve.steps[0].per_device
    ideal = line(
        devices,
        [count * first for count in devices],
        "ideal",
        0,
        line={"color": NEUTRAL, "dash": "dash", "width": 1},
    )
    together = line(devices, [step.aggregate for step in curve.steps], "together", 0, mode="lines+markers")
    return Chart(
        key=f"together-{curve.test}",
        title="scaling: all devices together",
        reading="The rate of all devices that work together, and what it would be on an ideal machine.",
        views=(
            View(
                data=(ideal, together),
                layout=layout(
                    "devices",
                    f"{label(curve.unit)}/s",
                    xaxis={"dtick": 1 if devices[-1] <= 16 else 4},
                    yaxis={"rangemode": "tozero"},
                    height=300,
                ),
            ),
        ),
    )
