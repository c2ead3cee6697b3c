"""The columns of the test table, with their units; the format modules only lay them out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean
from typing import TypeVar

import msgspec

from milabench_ng.analysis.scoring.comparison import ComparedTest
from milabench_ng.analysis.statistics.effects import unusual
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.summary import Boundary, Latency, TestSummary
from milabench_ng.present.render.cells import (
    Cell,
    Tone,
    exact_ratio,
    half_width,
    number,
    one_decimal,
    percent,
    ratio_text,
    ratio_tone,
    text,
    tone_of_verdict,
    whole,
)
from milabench_ng.present.render.fitting import WORDS
from milabench_ng.present.render.sections import Column, Section, section
from milabench_ng.report.report import Line, Report

T = TypeVar("T")
TestColumn = Column[Line]


def columns(report: Report) -> tuple[TestColumn, ...]:
    """The columns for which this report has data: weights and baselines only if there are any."""
    chosen = [_test(report), _UNIT]
    if report.weighted:
        chosen.append(_WEIGHT)
    chosen += [_N, _FAIL, _PERF, _INTERVAL]
    for index, suffix in _baselines(report):
        chosen += _ratio_columns(index, suffix, report.comparisons[index].margin)
    rest = (_STD, _BETWEEN_DEVICES, _RUN_TO_RUN, _PERF_ADJ, _NODE, _WAIT, *_load_columns(report), _MEMORY)
    return (*chosen, *rest)


def section_of_tests(report: Report, chosen: Sequence[TestColumn]) -> Section:
    """The table of the tests with the ``chosen`` columns; those without a weight, if others have one, are grey."""
    made = section_of("tests", "", report, chosen)
    faint: Tone = "faint"
    tones = tuple(
        (faint,) * len(row) if report.weighted and not line.scored.weight else row
        for line, row in zip(report.lines, made.tones, strict=True)
    )
    return msgspec.structs.replace(made, tones=tones)


def section_of(key: str, title: str, report: Report, chosen: Sequence[TestColumn]) -> Section:
    """A table of the tests with the ``chosen`` columns. It says so if rates and their ratio, side by side, disagree."""
    rates = any(column.title.startswith("perf_base") for column in chosen)
    apart = rates and any(_disagree(line) for line in report.lines)
    return section(key, title, report.lines, *chosen, notes=(_MEANS,) if apart else ())


def _disagree(line: Line) -> bool:
    """Whether a ratio is not that of the rates beside it, since repeats differ a lot."""
    perf = line.scored.perf
    return any(
        abs(perf / one.perf_base / one.perf_ratio - 1) > _APART
        for one in line.compared
        if perf and one and one.perf_base and one.perf_ratio
    )


_APART = 0.02
_MEANS = "perf_ratio: of the geometric means of the repeats; perf, perf_base: arithmetic means"


def column_groups(report: Report) -> tuple[tuple[str, tuple[TestColumn, ...]], ...]:
    """The columns grouped into tables that fit on a page, with titles: what decides first, then the rest."""
    test, weight = _test(report), [_WEIGHT] if report.weighted else []
    ratios = [_ratio_columns(index, suffix, report.comparisons[index].margin) for index, suffix in _baselines(report)]
    deciding = (column for _, ratio, _, verdict in ratios for column in (ratio, verdict))
    busy, *consumed = _load_columns(report) or (None,)
    rest = (*consumed, *_bottlenecks(report), _MEMORY)
    groups = [
        ("tests", (test, _PERF, *deciding, _UNIT, _INTERVAL, _N, _FAIL, *weight, _WAIT, *((busy,) if busy else ()))),
        (
            "tests in detail",
            (test, _PERF, _STD, _BETWEEN_DEVICES, _RUN_TO_RUN, _PERF_ADJ, _NODE, *rest),
        ),
    ]
    for index, other in enumerate(report.comparisons):
        against = (_PERF, *_ratio_columns(index, "", other.margin))
        groups.append((f"tests vs. {other.name}", (test, _UNIT, *weight, *against)))
    return tuple(groups)


def all_columns(report: Report) -> tuple[TestColumn, ...]:
    """`columns` and what they rest on, also what is charged for spread and failures on both sides of a comparison."""
    status = {at.scored.test: part.score.status for part in report.scored for at in part.lines if part.score}
    against = [
        column
        for index, suffix in _baselines(report)
        for column in (
            *_bound_columns(index, suffix, report.comparisons[index].margin),
            *_adjusted_columns(index, suffix),
        )
    ]
    return (
        *columns(report),
        _LOW,
        _HIGH,
        *against,
        _BOUND,
        _MEASURED_BOUND,
        _FLAGS,
        *_efficiency_columns(report),
        Column("isolation", value=lambda _: report.isolation),
        Column("score status", value=lambda at: status.get(at.scored.test)),
    )


def file_columns(report: Report) -> tuple[TestColumn, ...]:
    """`all_columns`, and what has tables of its own for people: a file holds one."""
    timed = _LATENCY if any(line.row.latency for line in report.lines) else ()
    return (*all_columns(report), *timed, *_derived_columns(report))


def _test(report: Report) -> TestColumn:
    """For people, a test's name without the suite, which is in the title."""
    prefix = f"{report.summary.suite}."
    return Column("test", show=lambda cell: str(cell).removeprefix(prefix), value=lambda at: at.scored.test)


def _load_columns(report: Report) -> tuple[TestColumn, ...]:
    """How busy the GPUs were, and what that took."""
    rows = [line.row for line in report.lines]
    busy = (_GPU,) if any(row.gpu_load for row in rows) else ()
    power = (_POWER,) if any(row.power_w is not None for row in rows) else ()
    return (*busy, *power, *(column for boundary, column in _ENERGIES.items() if _known(report, boundary)))


def _bottlenecks(report: Report) -> tuple[TestColumn, ...]:
    """What set the pace, as declared and measured; none where nothing was measured."""
    return (_BOUND, _MEASURED_BOUND) if any(line.row.bottleneck for line in report.lines) else ()


def _load(row: TestSummary) -> float | None:
    return mean(row.gpu_load.values()) if row.gpu_load else None


def _known(report: Report, boundary: Boundary) -> bool:
    return any(_energy(boundary, line) is not None for line in report.lines)


def _energy(boundary: Boundary, line: Line) -> float | None:
    """Joules per item. Stored results of earlier versions have the power of the GPUs, and their rate."""
    row = line.row
    if boundary == "GPU" and not row.energy:
        return row.power_w / line.scored.perf if row.power_w is not None and line.scored.perf else None
    return next((one.joules_per_item for one in row.energy if one.boundary == boundary), None)


def _items_per_joule(boundary: Boundary, line: Line) -> Cell:
    joules = _energy(boundary, line)
    return 1 / joules if joules else None


def _efficiency_columns(report: Report) -> list[TestColumn]:
    """Items per joule, by boundary."""
    return [
        Column(f"work per {boundary} energy", "unit/J", number, True, value=partial(_items_per_joule, boundary))
        for boundary in _ENERGIES
        if _known(report, boundary)
    ]


def _derived_columns(report: Report) -> list[TestColumn]:
    """One per unit that any test derives from its rate."""
    units = dict.fromkeys(each.unit for line in report.lines for each in line.derived)
    return [Column("perf", unit, number, True, value=partial(Line.in_unit, unit=unit)) for unit in units]


def _baselines(report: Report) -> list[tuple[int, str]]:
    """Each baseline's index, with the suffix that distinguishes its columns."""
    return [(index, f" {other.label}" if other.label else "") for index, other in enumerate(report.comparisons)]


def _of(index: int, value: Callable[[ComparedTest], Cell]) -> Callable[[Line], Cell]:
    """A value from the comparison with one baseline."""

    def cell(line: Line) -> Cell:
        compared = line.compared[index]
        return None if compared is None else value(compared)

    return cell


def _ratio_columns(index: int, suffix: str, margin: float) -> list[TestColumn]:
    aside = _of(index, lambda at: bool(at.set_aside or at.suppressed))
    return [
        Column(f"perf_base{suffix}", "unit/s", number, True, spare=10, value=_of(index, lambda at: at.perf_base)),
        Column(
            f"perf_ratio{suffix}",
            "",
            ratio_text,
            True,
            ratio_tone,
            value=_of(index, lambda at: at.suppressed_ratio if at.suppressed else at.perf_ratio),
            light=aside,
        ),
        Column(
            f"95% CI{suffix}",
            "",
            text,
            True,
            spare=7,
            key=f"95 % interval{suffix}",
            value=_of(index, lambda at: span(at.effect.ratio)),
        ),
        Column(
            f"verdict{suffix}",
            unusual(margin),
            tone=tone_of_verdict,
            spare=1,
            words=WORDS,
            value=_of(index, _verdict),
            light=aside,
        ),
    ]


def _adjusted_columns(index: int, suffix: str) -> list[TestColumn]:
    aside = _of(index, lambda at: bool(at.set_aside))
    return [
        Column(
            f"perf_base_adj{suffix}", "unit/s", number, True, spare=17, value=_of(index, lambda at: at.perf_base_adj)
        ),
        Column(
            f"perf_ratio_adj{suffix}",
            "",
            ratio_text,
            True,
            ratio_tone,
            spare=18,
            value=_of(index, lambda at: at.perf_ratio_adj),
            light=aside,
        ),
    ]


def _bound_columns(index: int, suffix: str, margin: float) -> list[TestColumn]:
    """Columns for the ratio's interval and what the verdict rests on."""
    low = _of(index, lambda at: at.effect.ratio.low if at.effect.ratio else None)
    high = _of(index, lambda at: at.effect.ratio.high if at.effect.ratio else None)
    why = _of(index, lambda at: at.suppressed or at.set_aside or at.effect.why)
    return [
        Column(f"ratio low{suffix}", "", exact_ratio, True, value=low),
        Column(f"ratio high{suffix}", "", exact_ratio, True, value=high),
        Column(f"p of the verdict (Holm){suffix}", "", number, True, value=_of(index, lambda at: at.effect.p)),
        Column(f"margin{suffix}", "%", one_decimal, True, value=_of(index, lambda _: 100 * margin)),
        Column(f"repeats for 1 %{suffix}", "", whole, True, value=_of(index, lambda at: at.effect.repeats_needed)),
        Column(f"no verdict because{suffix}", words=WORDS, value=why),
    ]


def _verdict(at: ComparedTest) -> str:
    """The verdict on a row's ratio, or why there is none."""
    if at.suppressed:
        first = at.suppressed.partition("; ")[0].rpartition(" vs. ")[0].rpartition(" ")[0]
        return f"suppressed: {first or 'other work'}"
    return "not counted" if at.set_aside else "estimated" if at.origin == "estimated" else at.effect.verdict


def span(interval: Interval | None) -> str | None:
    return None if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]"


def quantiles(of: Callable[[T], Latency | None], what: str = "") -> tuple[Column[T], ...]:
    """The columns of a latency, whose titles begin with ``what``; empty cells where nothing was timed."""
    return (
        Column(f"{what}p50", "ms", number, True, value=lambda item: timed.p50_ms if (timed := of(item)) else None),
        Column(f"{what}p99", "ms", number, True, value=lambda item: timed.p99_ms if (timed := of(item)) else None),
    )


def half_width_pct(interval: Interval | None) -> float | None:
    """Half the width of an interval, in percent of the value (upwards; the lower half is hardly narrower)."""
    return None if interval is None else 100 * (interval.high / interval.value - 1)


_UNIT: TestColumn = Column("unit", spare=2, value=lambda at: at.scored.unit)
_WEIGHT: TestColumn = Column(
    "weight", "", lambda cell: f"{cell:.4g}", True, spare=14, value=lambda at: at.scored.weight or 0.0
)
_N: TestColumn = Column("attempts", "", whole, True, spare=3, key="n", value=lambda at: at.scored.n)
_FAIL: TestColumn = Column(
    "fail", "", whole, True, lambda cell: "bad" if cell else "plain", value=lambda at: at.scored.fail
)
_PERF: TestColumn = Column("perf", "unit/s", number, True, value=lambda at: at.scored.perf)
_INTERVAL: TestColumn = Column(
    "95% CI", "±%", half_width, True, spare=3, key="+-95 % (%)", value=lambda at: half_width_pct(at.scored.interval)
)
_STD: TestColumn = Column(
    "CV all runs",
    "%",
    one_decimal,
    True,
    spare=4,
    key="std (%)",
    value=lambda at: at.scored.std_pct if at.row.train and at.row.train.n > 1 else None,
)
_PERF_ADJ: TestColumn = Column("perf_adj", "unit/s", number, True, spare=13, value=lambda at: at.scored.perf_adj)
_BETWEEN_DEVICES: TestColumn = Column(
    "CV between GPUs",
    "%",
    one_decimal,
    True,
    spare=8,
    key="devices (%)",
    value=lambda at: at.scored.between_devices_pct,
)
_RUN_TO_RUN: TestColumn = Column(
    "CV between repeats", "%", one_decimal, True, spare=9, key="runs (%)", value=lambda at: at.scored.run_to_run_pct
)
_NODE: TestColumn = Column("node total", "unit/s", number, True, spare=16, value=lambda at: at.node_total)
_WAIT: TestColumn = Column("data wait", "%", one_decimal, True, spare=6, value=lambda at: percent(at.row.wait_share))
_GPU: TestColumn = Column("GPU", "%", whole, True, spare=5, value=lambda at: percent(_load(at.row)))
_POWER: TestColumn = Column("power", "W", whole, True, spare=12, value=lambda at: at.row.power_w)


def _energy_column(boundary: Boundary, spare: int, key: str = "") -> TestColumn:
    return Column(f"{boundary} energy", "J/unit", number, True, spare=spare, key=key, value=partial(_energy, boundary))


_ENERGIES: dict[Boundary, TestColumn] = {
    "GPU": _energy_column("GPU", 11, "energy (J/unit)"),
    "GPU + CPU": _energy_column("GPU + CPU", 19),
    "CPU": _energy_column("CPU", 19),
    "wall": _energy_column("wall", 20),
}
_MEMORY: TestColumn = Column(
    "peak GPU memory", "MiB", whole, True, spare=15, key="peak (MiB)", value=lambda at: at.row.peak_memory or None
)
_LOW: TestColumn = Column("perf low 95 %", "unit/s", number, True, value=lambda at: at.scored.low)
_HIGH: TestColumn = Column("perf high 95 %", "unit/s", number, True, value=lambda at: at.scored.high)
_BOUND: TestColumn = Column("bottleneck", key="bound by", value=lambda at: at.scored.bound)
_MEASURED_BOUND: TestColumn = Column("measured bottleneck", spare=14, value=lambda at: at.row.bottleneck)
_FLAGS: TestColumn = Column("flags", "", whole, True, value=lambda at: len(at.row.flags))
_LATENCY: tuple[TestColumn, ...] = quantiles(lambda at: at.row.latency, "latency ")
