"""The charts of one test: every tenant's rate over time, its launches by device, how it scales. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import quantiles

import msgspec

from milabench_ng.analysis.launch.timeline import BatchKey, Course
from milabench_ng.analysis.scoring.scaling import ScalingCurve
from milabench_ng.model.grouping import gathered, grouped
from milabench_ng.present.html.figures import (
    DASHED,
    FEWEST_POINTS,
    Axis,
    Box,
    Chart,
    Curve,
    Label,
    Look,
    Mark,
    Part,
    Segment,
    View,
    counts,
    line_key,
    marked_line,
    names,
    numbers,
    plot,
    stretches,
    style,
)
from milabench_ng.present.render.cells import figure
from milabench_ng.report.report import Line

_BOX_FROM = 5
"""Fewest launches per device for which quartiles are drawn."""


def charts_of_test(at: Line, courses: Sequence[Course], curves: Sequence[ScalingCurve]) -> Iterator[Chart]:
    """The charts for which there is data; ``courses`` covers all tests."""
    test = at.scored.test
    batches = grouped((course for course in courses if course.label == test), lambda course: course.batch_key)
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
    told = [f"device {at.device}{' (failed)' if at.failed else ''}" for at in batch]
    lines = (
        Curve(points=stretches(at.edges, at.rates), look=style(index), title=told[index])
        for index, at in enumerate(batch)
    )
    seconds = numbers([edge for at in batch for edge in at.edges], "seconds since the common start")
    rates = numbers([rate for at in batch for rate in at.rates], f"{batch[0].unit}/s", from_zero=True)
    windows = [at.window for at in batch if at.window is not None]
    shaded = _window(min(w[0] for w in windows), max(w[1] for w in windows), rates) if windows else ()
    keys = (line_key(each, style(index)) for index, each in enumerate(told))
    return plot(seconds, rates, (*shaded, *lines), keys=keys, name=name)


def _window(begin: float, end: float, rates: Axis) -> tuple[Part, ...]:
    """The shaded averaging window."""
    return (
        Box(begin=(begin, rates.low), end=(end, rates.high), opacity=0.18),
        Label(at=((begin + end) / 2, rates.low), text="averaged", shift=(0, -5)),
    )


def _by_device(at: Line) -> dict[str, list[float]]:
    """Rates by device, of launches over one device."""
    launches = {} if at.row.work.scheme.spreads else at.row.launches
    scale = 1.0 if not at.row.train or not at.scored.perf else at.scored.perf / at.row.train.mean
    found = gathered((job.partition("#")[0].partition(".")[2], scale * perf) for job, perf in launches.items())
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def _distribution(test: str, unit: str, devices: dict[str, list[float]]) -> Chart:
    parts = [part for index, rates in enumerate(devices.values()) for part in _launches(index, rates)]
    rates = numbers([rate for each in devices.values() for rate in each], f"{unit}/s")
    return Chart(
        key=f"devices-{test}",
        title="launches by device",
        reading="Each mark is a launch; where a device has five or more, the box holds the middle half of them. The "
        "axis does not begin at 0.",
        views=(plot(msgspec.structs.replace(names(list(devices)), title="device"), rates, parts, height=240),),
    )


def _launches(index: int, rates: Sequence[float]) -> Iterator[Part]:
    """The marks of a device, side by side in the order of the launches, and its quartiles."""
    look = style(index)
    if len(rates) >= _BOX_FROM:
        low, middle, high = quantiles(rates, n=4, method="inclusive")
        yield Box(begin=(index + 0.2, low), end=(index + 0.8, high), colour=look.colour, opacity=0.2)
        yield Segment(begin=(index + 0.2, middle), end=(index + 0.8, middle), look=Look(look.colour), width=2)
    for place, rate in enumerate(rates):
        across = index + 0.3 + 0.4 * (place + 0.5) / len(rates)
        yield Mark(at=(across, rate), look=look, title=figure(rate), size=7)


def _scaling(curve: ScalingCurve) -> Chart:
    first = curve.steps[0].per_device
    points = [(float(step.devices), step.aggregate) for step in curve.steps]
    ideal = Curve(points=tuple((at, at * first) for at, _ in points), look=DASHED)
    told = [f"{at:.0f} devices: {figure(value)}" for at, value in points]
    together = marked_line(points, told, style(0), "together")
    rates = numbers(
        [*(rate for _, rate in points), *(rate for _, rate in ideal.points)], f"{curve.unit}/s", from_zero=True
    )
    devices = counts([step.devices for step in curve.steps], "devices")
    keys = (line_key("ideal", DASHED), line_key("together", style(0)))
    return Chart(
        key=f"together-{curve.test}",
        title="scaling: all devices together",
        reading="The rate of all devices that work together, and what it would be on an ideal machine.",
        views=(plot(devices, rates, (ideal, *together), keys=keys, height=240),),
    )
