"""The columns of the test table, with their units; the format modules only lay them out. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from milabench_ng.report.render.cells import (
    Cell,
    Tone,
    number,
    one_decimal,
    percent,
    ratio_text,
    ratio_tone,
    text,
    tone_of_verdict,
    whole,
)
from milabench_ng.report.report import Line, Report
from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.scoring.comparison import ComparedTest
from milabench_ng.report.statistics.effects import unusual
from milabench_ng.report.statistics.intervals import Interval


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column: its title, its unit, and its value for a test."""

    key: str
    title: str
    unit: str
    """Empty for a plain number or text; ``unit/s`` refers to the unit in the row's unit column."""
    value: Callable[[Line], Cell]
    show: Callable[[Cell], str]
    tone: Callable[[Cell], Tone] = lambda _: "plain"
    number: bool = True
    light: Callable[[Line], Cell] = lambda _: None
    """Whether a test's cell is grey, since it does not count."""

    def tone_of(self, line: Line) -> Tone:
        """The tone of a test's cell."""
        return "faint" if self.light(line) else self.tone(self.value(line))

    @property
    def header(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def columns(report: Report) -> tuple[Column, ...]:
    """The columns for which this report has data: weights and baselines only if there are any."""
    chosen = [_TEST, _UNIT]
    if report.score is not None:
        chosen.append(_WEIGHT)
    chosen += [_N, _FAIL, _PERF, _INTERVAL]
    for index, suffix in _baselines(report):
        chosen += _ratio_columns(index, suffix, report.comparisons[index].margin)
    chosen += [_STD, _BETWEEN_DEVICES, _RUN_TO_RUN, _PERF_ADJ]
    for index, suffix in _baselines(report):
        chosen += _adjusted_columns(index, suffix)
    return (*chosen, _NODE, _WAIT, _MEMORY)


def column_groups(report: Report) -> tuple[tuple[str, tuple[Column, ...]], ...]:
    """The columns grouped into tables that fit on a page, with titles: the tests alone, then against each baseline."""
    weight = [_WEIGHT] if report.score is not None else []
    own = (_N, _FAIL, _PERF, _INTERVAL, _STD, _BETWEEN_DEVICES, _RUN_TO_RUN, _PERF_ADJ, _NODE, _WAIT, _MEMORY)
    groups = [("tests", (_TEST, _UNIT, *weight, *own))]
    for index, other in enumerate(report.comparisons):
        against = (_PERF, *_ratio_columns(index, "", other.margin), _PERF_ADJ, *_adjusted_columns(index, ""))
        groups.append((f"tests against {other.name}", (_TEST, _UNIT, *weight, *against)))
    return tuple(groups)


def file_columns(report: Report) -> tuple[Column, ...]:
    """`columns`, and those of interest only to programs."""
    bounds = [
        column
        for index, suffix in _baselines(report)
        for column in _bound_columns(index, suffix, report.comparisons[index].margin)
    ]
    return (
        *columns(report),
        _LOW,
        _HIGH,
        *bounds,
        _BOUND,
        _FLAGS,
        *_latency_columns(report),
        *_derived_columns(report),
    )


def _latency_columns(report: Report) -> tuple[Column, ...]:
    return (_P50, _P99) if any(line.row.latency for line in report.lines) else ()


def _derived_columns(report: Report) -> list[Column]:
    """One per unit that any test derives from its rate."""
    units = dict.fromkeys(each.unit for line in report.lines for each in line.derived)
    return [
        Column(key=f"perf {unit}", title="perf", unit=unit, value=partial(_derived, unit), show=number)
        for unit in units
    ]


def _derived(unit: str, line: Line) -> Cell:
    return next((each.value for each in line.derived if each.unit == unit), None)


def _baselines(report: Report) -> list[tuple[int, str]]:
    """Each baseline's index, with the suffix that distinguishes its columns."""
    return [(index, f" {other.label}" if other.label else "") for index, other in enumerate(report.comparisons)]


def _of(index: int, value: Callable[[ComparedTest], Cell]) -> Callable[[Line], Cell]:
    """A value from the comparison with one baseline."""

    def cell(line: Line) -> Cell:
        compared = line.compared[index]
        return None if compared is None else value(compared)

    return cell


def _ratio_columns(index: int, suffix: str, margin: float) -> list[Column]:
    return [
        Column(
            key=f"perf_base{suffix}",
            title=f"perf_base{suffix}",
            unit="unit/s",
            value=_of(index, lambda at: at.perf_base),
            show=number,
        ),
        Column(
            key=f"perf_ratio{suffix}",
            title=f"perf_ratio{suffix}",
            unit="",
            value=_of(index, lambda at: at.perf_ratio),
            show=ratio_text,
            tone=ratio_tone,
            light=_of(index, lambda at: bool(at.set_aside)),
        ),
        Column(
            key=f"ratio_interval{suffix}",
            title=f"95 % interval{suffix}",
            unit="",
            value=_of(index, _span_of),
            show=text,
        ),
        Column(
            key=f"verdict{suffix}",
            title=f"verdict{suffix}",
            unit=unusual(margin),
            value=_of(index, _verdict),
            show=text,
            tone=tone_of_verdict,
            number=False,
        ),
    ]


def _adjusted_columns(index: int, suffix: str) -> list[Column]:
    return [
        Column(
            key=f"perf_base_adj{suffix}",
            title=f"perf_base_adj{suffix}",
            unit="unit/s",
            value=_of(index, lambda at: at.perf_base_adj),
            show=number,
        ),
        Column(
            key=f"perf_ratio_adj{suffix}",
            title=f"perf_ratio_adj{suffix}",
            unit="",
            value=_of(index, lambda at: at.perf_ratio_adj),
            show=ratio_text,
            tone=ratio_tone,
            light=_of(index, lambda at: bool(at.set_aside)),
        ),
    ]


def _bound_columns(index: int, suffix: str, margin: float) -> list[Column]:
    """Columns for the ratio's interval and what the verdict rests on."""
    values: dict[str, tuple[str, Callable[[ComparedTest], Cell]]] = {
        "ratio low": ("", lambda at: at.effect.ratio.low if at.effect.ratio else None),
        "ratio high": ("", lambda at: at.effect.ratio.high if at.effect.ratio else None),
        "estimated ratio low": ("", lambda at: at.band.low if at.band else None),
        "estimated ratio high": ("", lambda at: at.band.high if at.band else None),
        "p of the verdict (Holm)": ("", lambda at: at.effect.p),
        "margin": ("%", lambda _: 100 * margin),
        "detectable": ("%", lambda at: at.effect.mde_pct),
        "repeats for 1 %": ("", lambda at: at.effect.repeats_needed),
        "no verdict because": ("", lambda at: at.suppressed or at.set_aside or at.effect.why),
    }
    return [
        Column(key=f"{title}{suffix}", title=f"{title}{suffix}", unit=unit, value=_of(index, value), show=text)
        for title, (unit, value) in values.items()
    ]


def _verdict(at: ComparedTest) -> str:
    """The verdict on a row's ratio, or why there is none."""
    if at.suppressed:
        return "suppressed"
    return "not counted" if at.set_aside else "estimated" if at.band else at.effect.verdict


def _span_of(at: ComparedTest) -> str | None:
    """The interval of a measured ratio, the band of an estimated one."""
    return span(at.known)


def span(interval: Interval | EstimateBand | None) -> str | None:
    """The interval of a ratio; estimates are labelled."""
    if interval is None:
        return None
    return f"[{interval.low:.3f}, {interval.high:.3f}]{' estimated' if isinstance(interval, EstimateBand) else ''}"


def half_width_pct(interval: Interval | None) -> float | None:
    """Half the width of an interval, in percent of the value (upwards; the lower half is hardly narrower)."""
    return None if interval is None else 100 * (interval.high / interval.value - 1)


_TEST = Column(key="test", title="test", unit="", value=lambda at: at.scored.test, show=text, number=False)
_UNIT = Column(key="unit", title="unit", unit="", value=lambda at: at.scored.unit, show=text, number=False)
_WEIGHT = Column(
    key="weight", title="weight", unit="", value=lambda at: at.scored.weight or 0.0, show=lambda cell: f"{cell:.4g}"
)
_N = Column(key="n", title="n", unit="", value=lambda at: at.scored.n, show=whole)
_FAIL = Column(
    key="fail",
    title="fail",
    unit="",
    value=lambda at: at.scored.fail,
    show=whole,
    tone=lambda cell: "bad" if cell else "plain",
)
_PERF = Column(key="perf", title="perf", unit="unit/s", value=lambda at: at.scored.perf, show=number)
_INTERVAL = Column(
    key="interval_pct",
    title="+-95 %",
    unit="%",
    value=lambda at: half_width_pct(at.scored.interval),
    show=one_decimal,
)
_STD = Column(key="std_pct", title="std", unit="%", value=lambda at: at.scored.std_pct, show=one_decimal)
_PERF_ADJ = Column(key="perf_adj", title="perf_adj", unit="unit/s", value=lambda at: at.scored.perf_adj, show=number)
_BETWEEN_DEVICES = Column(
    key="between_devices_pct",
    title="devices",
    unit="%",
    value=lambda at: at.scored.between_devices_pct,
    show=one_decimal,
)
_RUN_TO_RUN = Column(
    key="run_to_run_pct", title="runs", unit="%", value=lambda at: at.scored.run_to_run_pct, show=one_decimal
)
_NODE = Column(key="node_total", title="node total", unit="unit/s", value=lambda at: at.node_total, show=number)
_WAIT = Column(
    key="wait_pct", title="data wait", unit="%", value=lambda at: percent(at.row.wait_share), show=one_decimal
)
_MEMORY = Column(
    key="peak_memory",
    title="peak",
    unit="MiB",
    value=lambda at: at.row.peak_memory or None,
    show=whole,
)
_LOW = Column(
    key="perf_low",
    title="perf low 95 %",
    unit="unit/s",
    value=lambda at: at.scored.interval.low if at.scored.interval else None,
    show=number,
)
_HIGH = Column(
    key="perf_high",
    title="perf high 95 %",
    unit="unit/s",
    value=lambda at: at.scored.interval.high if at.scored.interval else None,
    show=number,
)
_BOUND = Column(key="bound", title="bound by", unit="", value=lambda at: at.scored.bound, show=text, number=False)
_FLAGS = Column(key="flags", title="flags", unit="", value=lambda at: len(at.row.flags), show=whole)
_P50 = Column(
    key="latency_p50",
    title="latency p50",
    unit="ms",
    value=lambda at: at.row.latency.p50_ms if at.row.latency else None,
    show=number,
)
_P99 = Column(
    key="latency_p99",
    title="latency p99",
    unit="ms",
    value=lambda at: at.row.latency.p99_ms if at.row.latency else None,
    show=number,
)
