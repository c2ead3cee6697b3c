"""The charts of the data-loading study: seconds of an epoch, the GPU's load over it, and its mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from milabench_ng.analysis.launch.load_course import STEPS, LoadCourse
from milabench_ng.model.stats import mean, population_std
from milabench_ng.present.html.figures import (
    Axis,
    Box,
    Chart,
    Curve,
    Key,
    Look,
    Part,
    Segment,
    Tick,
    View,
    line_key,
    names,
    numbers,
    plot,
    style,
)
from milabench_ng.present.layouts.data_loading import LoadingResult, loading_results
from milabench_ng.report.report import Report


def loading_charts(report: Report, courses: Sequence[LoadCourse]) -> Iterator[Chart]:
    """The charts for which there is data; none for another suite."""
    results = loading_results(report)
    if not results:
        return
    yield Chart(
        key="loading-epochs",
        title="data loading: seconds of an epoch",
        reading="An epoch of 740 images at the mean rate of a GPU; each strategy adds one thing to those before. Error "
        "bars: sample standard deviation over the repetitions. Pale, with a dashed edge: under a limit.",
        views=(_bars(results, "time of an epoch (s)", lambda each: each.epoch_s, lambda each: each.deviation_s),),
    )
    free = [each for each in results if not each.limited]
    bands = {each.name: tuple(_band(each, courses, number)) for number, each in enumerate(free)}
    if any(bands.values()):
        yield Chart(
            key="loading-course",
            title="data loading: GPU utilization over an epoch",
            reading="Without a limit; the first epoch from the common start on. Line: mean over the launches; band: "
            "one standard deviation.",
            views=(
                plot(
                    _percent("progress of the epoch (%)"),
                    _percent("GPU utilization (%)"),
                    (part for parts in bands.values() for part in parts),
                    keys=(line_key(name, style(at)) for at, (name, parts) in enumerate(bands.items()) if parts),
                    height=380,
                ),
            ),
        )
    known = [each for each in results if each.load is not None]
    if known:
        yield Chart(
            key="loading-load",
            title="data loading: mean GPU utilization",
            reading="Mean utilization while the rate was measured, over devices and repetitions, as the driver "
            "reports it. Pale, with a dashed edge: under a limit.",
            views=(_bars(known, "GPU utilization (%)", lambda each: 100 * (each.load or 0.0), lambda _: None),),
        )


def _percent(title: str) -> Axis:
    return Axis(low=0, high=100, ticks=tuple(Tick(at, str(at)) for at in range(0, 101, 20)), title=title)


def _bars(
    results: Sequence[LoadingResult],
    title: str,
    value: Callable[[LoadingResult], float],
    deviation: Callable[[LoadingResult], float | None],
) -> View:
    """A group of bars for each strategy, a bar for each limit."""
    strategies = list(dict.fromkeys(each.name for each in sorted(results, key=lambda each: each.order)))
    limits = list(dict.fromkeys(each.limit for each in results))
    width = _GROUP / len(limits)
    parts: list[Part] = []
    for each in results:
        at = strategies.index(each.name) + (1 - _GROUP) / 2 + width * (limits.index(each.limit) + 0.5)
        told = f"{each.name}, {each.limit}: {value(each):.4g}"
        bar = _bar(limits.index(each.limit), limited=each.limited)
        parts.append(
            msgspec.structs.replace(bar, begin=(at - width / 2, 0), end=(at + width / 2, value(each)), title=told)
        )
        if (spread := deviation(each)) is not None:
            ends = (at, value(each) - spread), (at, value(each) + spread)
            parts.append(Segment(begin=ends[0], end=ends[1], look=_SPREAD, width=1.5))
    heights = [value(each) + (deviation(each) or 0.0) for each in results]
    samples = {each.limit: _bar(limits.index(each.limit), limited=each.limited) for each in results}
    keys = (Key(name=limit, sample=sample) for limit, sample in samples.items())
    return plot(names(strategies), numbers([0.0, *heights], title, from_zero=True), parts, keys=keys)


_GROUP = 0.8
"""The width of a group of bars, of 1."""
_SPREAD = Look("currentColor")


def _bar(index: int, *, limited: bool) -> Box:
    opacity = 0.45 if limited else 1.0
    return Box(begin=(0, 0), end=(1, 1), colour=style(index).colour, opacity=opacity, dashed=limited)


def _band(result: LoadingResult, courses: Sequence[LoadCourse], index: int) -> Iterator[Part]:
    """Mean and deviation over the launches of a test, as far as all of them went."""
    own = [each.loads for each in courses if each.label == result.test]
    steps = list(zip(*own, strict=False))
    if not steps:
        return
    middle, spread = ([100 * of(values) for values in steps] for of in (mean, population_std))
    progress = [100 * step / STEPS for step in range(len(steps))]
    high, low = ([at + sign * width for at, width in zip(middle, spread, strict=True)] for sign in (1, -1))
    around = (*zip(progress, high, strict=True), *reversed(tuple(zip(progress, low, strict=True))))
    yield Curve(points=around, look=style(index), filled=True)
    yield Curve(points=tuple(zip(progress, middle, strict=True)), look=style(index), title=result.name)
