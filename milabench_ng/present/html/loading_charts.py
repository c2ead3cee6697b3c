"""The charts of the data-loading study: seconds of an epoch, the GPU's load over it, and its mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from milabench_ng.analysis.launch.load_course import STEPS, LoadCourse
from milabench_ng.model.stats import mean, population_std
from milabench_ng.present.html.figures import Chart, PlotTrace, View, label, layout, line, style
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
        "bars: sample standard deviation over the repetitions. Hatched: under a limit.",
        views=(_bars(results, "time of an epoch (s)", lambda each: each.epoch_s, lambda each: each.deviation_s),),
    )
    free = [each for each in results if not each.limited]
    bands = [part for number, each in enumerate(free) for part in _band(each, courses, number)]
    if bands:
        yield Chart(
            key="loading-course",
            title="data loading: the load of the GPU over an epoch",
            reading="Without a limit; the first epoch from the common start on. Line: mean over the launches; band: "
            "one standard deviation.",
            views=(
                View(
                    data=tuple(bands),
                    layout=layout(
                        "progress of the epoch (%)", "GPU utilisation (%)", yaxis={"range": [0, 100]}, height=420
                    ),
                ),
            ),
        )
    known = [each for each in results if each.load is not None]
    if known:
        yield Chart(
            key="loading-load",
            title="data loading: mean load of the GPU",
            reading="Mean utilisation while the rate was measured, over devices and repetitions, as the driver tells "
            "it. Hatched: under a limit.",
            views=(_bars(known, "GPU utilisation (%)", lambda each: 100 * (each.load or 0.0), lambda _: None),),
        )


def _bars(
    results: Sequence[LoadingResult],
    title: str,
    value: Callable[[LoadingResult], float],
    deviation: Callable[[LoadingResult], float | None],
) -> View:
    """A group of bars for each strategy, a bar for each limit."""
    traces = [
        _bar(limit, [each for each in results if each.limit == limit], index, value, deviation)
        for index, limit in enumerate(dict.fromkeys(each.limit for each in results))
    ]
    names = list(dict.fromkeys(label(each.name) for each in sorted(results, key=lambda each: each.order)))
    xaxis = {"type": "category", "categoryorder": "array", "categoryarray": names}
    return View(
        data=tuple(traces), layout=layout("", title, barmode="group", xaxis=xaxis, yaxis={"rangemode": "tozero"})
    )


def _bar(
    limit: str,
    own: Sequence[LoadingResult],
    index: int,
    value: Callable[[LoadingResult], float],
    deviation: Callable[[LoadingResult], float | None],
) -> PlotTrace:
    colour, _, _ = style(index)
    limited = own[0].limited
    deviations = [deviation(each) for each in own]
    return {
        "type": "bar",
        "name": label(limit),
        "x": [label(each.name) for each in own],
        "y": [value(each) for each in own],
        "error_y": {"type": "data", "array": deviations, "visible": any(each is not None for each in deviations)},
        "marker": {"color": colour, "opacity": 0.6 if limited else 1, "pattern": {"shape": "x" if limited else ""}},
        "hovertemplate": "%{x}: %{y:.4g}",
    }


def _band(result: LoadingResult, courses: Sequence[LoadCourse], index: int) -> Iterator[PlotTrace]:
    """Mean and deviation over the launches of a test, as far as all of them went."""
    own = [each.loads for each in courses if each.label == result.test]
    steps = list(zip(*own, strict=False))
    if not steps:
        return
    middle, spread = ([100 * of(values) for values in steps] for of in (mean, population_std))
    progress = [100 * step / STEPS for step in range(len(steps))]
    low, high = ([at + sign * width for at, width in zip(middle, spread, strict=True)] for sign in (-1, 1))
    around: PlotTrace = {
        "type": "scatter",
        "mode": "none",
        "x": [*progress, *reversed(progress)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "fillcolor": style(index)[0],
        "opacity": 0.2,
        "showlegend": False,
        "legendgroup": str(index),
        "hoverinfo": "skip",
    }
    yield around
    yield line(
        progress, middle, result.name, index, legendgroup=str(index), hovertemplate="%{x:.0f} %: %{y:.0f} % busy"
    )
