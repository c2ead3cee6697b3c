"""The matrix of slowdowns: victims by antagonists, and what presses on what. See `analysis.scoring.neighbours`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from milabench_ng.analysis.scoring.neighbours import (
    PACKED,
    FenceGain,
    MeanSlowdown,
    Slowdown,
    contentiousness,
    cost_of_neighbours,
    worth_of_fence,
)
from milabench_ng.analysis.scoring.pressure import PressureCurve, busy, pressure_curves
from milabench_ng.analysis.statistics.effects import Effect
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped
from milabench_ng.model.units import counted
from milabench_ng.present.layouts.layout import SuiteLayout
from milabench_ng.present.render.cells import Cell, figure
from milabench_ng.present.render.sections import Column, Form, Section, section
from milabench_ng.report.report import Report

SUITE = "interference"
NOTE = "rate alone / rate with neighbors, 95% interval; *: significantly above 1.02, adjusted over all cells"
GAIN_NOTE = "slowdown without isolation / slowdown with isolation, with 95% interval"
NOTHING = "-"
ALL_TENANTS = "all tenants at once"
"""How people read `PACKED`."""


def table(report: Report) -> Section:
    """A row for each cell."""
    return section(SUITE, "Interference", _required(report), *_COLUMNS)


def tables(report: Report) -> tuple[Section, ...]:
    """The matrix, means by antagonist, curves of pressure, the antagonists' rates, what the fence is worth."""
    cells = _required(report)
    victims = list(dict.fromkeys(cell.victim for cell in cells))
    columns = [_column(cells, beside) for beside in antagonists(cells)]
    lost = (f"no slowdown computed for {lost.test}: {lost.why}" for lost in report.lost_cells)
    cost = _told(cost_of_neighbours(cells), "cost of neighbors", ALL_TENANTS)
    notes = (cost, NOTE, *_without_verdict(cells), *lost, *_other_caches(cells))
    worth = worth_of_fence(report.fence_gains)
    why = f"no interval over all cells: {worth.effect.why}" if worth and worth.effect.why else ""
    gain = (_told(worth, "isolation benefit", "all cells"), why, GAIN_NOTE)
    matrix = section(
        "matrix", "Slowdown", victims, Column[str]("victim", value=str), *columns, notes=tuple(filter(None, notes))
    )
    fence = section(
        "fence-worth", "With and without isolation", report.fence_gains, *_GAINS, notes=tuple(filter(None, gain))
    )
    points = [(curve, cell) for curve in pressure_curves(cells) for cell in curve.cells]
    blame = contentiousness(cells)
    pressure = section("pressure", "Slowdown by antagonist load", points, *_PRESSURE)
    return (
        matrix,
        *((section("blame", "By antagonist", blame.items(), *_BLAME),) if blame else ()),
        *((pressure,) if points else ()),
        section("pressed", "Antagonists", cells, *_PRESSED),
        *((fence,) if report.fence_gains else ()),
    )


def file_tables(report: Report) -> tuple[Section, ...]:
    """The tables as files, with full precision; none without neighbours."""
    cells = report.neighbours
    points = [(curve, cell) for curve in pressure_curves(cells) for cell in curve.cells]
    tests = Column[Slowdown]("test", value=lambda cell: cell.label)
    found = (
        section("slowdowns", "Slowdown", cells, *_COLUMNS),
        section("by-antagonist", "By antagonist", contentiousness(cells).items(), *_BLAME_IN_FILES),
        section("pressure", "Slowdown by antagonist load", points, *_PRESSURE_IN_FILES),
        section("antagonists", "Antagonists", cells, tests, *_RATES),
        section("fence-worth", "With and without isolation", report.fence_gains, *_GAINS_IN_FILES),
    )
    return tuple(each for each in found if each.rows)


def _holds(report: Report, form: Form) -> tuple[str, ...]:
    """What isolation gains comes from --compare; the CSV has the slowdowns alone."""
    return ("--compare",) if report.fence_gains and form != "csv" else ()


LAYOUT = SuiteLayout(table=table, tables=tables, holds=_holds)
Item = TypeVar("Item")


def antagonists(cells: Sequence[Slowdown]) -> list[str]:
    """What victims ran beside, `PACKED` first."""
    return list(dict.fromkeys(cell.beside for cell in sorted(cells, key=lambda cell: cell.beside != PACKED)))


def _interval(effect_of: Callable[[Item], Effect]) -> tuple[Column[Item], Column[Item]]:
    """The ends of an interval; empty cells where there is none."""
    return (
        Column("low 95 %", value=lambda item: found.low if (found := effect_of(item).ratio) else None),
        Column("high 95 %", value=lambda item: found.high if (found := effect_of(item).ratio) else None),
    )


def _next_to(beside: str) -> str:
    """What a victim ran next to, for people."""
    return ALL_TENANTS if beside == PACKED else beside


_RATES: tuple[Column[Slowdown], ...] = (
    Column("alone", value=lambda cell: cell.alone),
    Column("with neighbor", value=lambda cell: cell.together),
    Column("unit", value=lambda cell: f"{cell.unit}/s"),
    Column("neighbor", value=lambda cell: ", ".join(cell.company) or None),
    Column("neighbor's rate", value=lambda cell: _company_rate(cell)),
    Column("neighbor's unit", value=lambda cell: ", ".join(_units(cell)) or None),
    Column("worst tenant / mean", value=lambda cell: cell.fairness),
)
_COLUMNS: tuple[Column[Slowdown], ...] = (
    Column("victim", value=lambda cell: cell.victim),
    Column("next to", value=lambda cell: _next_to(cell.beside)),
    Column("slowdown", value=lambda cell: cell.value),
    *_interval(lambda cell: cell.effect),
    Column("verdict", value=lambda cell: cell.effect.verdict),
    Column("p of the verdict (Holm)", value=lambda cell: cell.effect.p),
    Column(
        "significantly slower",
        value=lambda cell: cell.not_judged or ("yes" if cell.sure else "no"),
    ),
    Column("pairs", value=lambda cell: cell.pairs),
    Column("pairs lost", value=lambda cell: cell.lost),
    *_RATES,
    Column("test", value=lambda cell: cell.label),
    Column("data cache alone", value=lambda cell: cell.caches[0] or None),
    Column("data cache with neighbor", value=lambda cell: cell.caches[1] or None),
)
_PRESSED: tuple[Column[Slowdown], ...] = (
    Column("test", value=lambda cell: cell.test),
    Column("alone", value=lambda cell: f"{figure(cell.alone)} {cell.unit}/s"),
    Column("with neighbor", value=lambda cell: f"{figure(cell.together)} {cell.unit}/s"),
    Column("neighbor's rate", value=lambda cell: pressed(cell) or NOTHING),
    Column("worst tenant / mean", value=lambda cell: NOTHING if cell.fairness is None else f"{cell.fairness:.3f}"),
)
_BLAME: tuple[Column[tuple[str, MeanSlowdown]], ...] = (
    Column("antagonist", value=lambda one: one[0]),
    Column("victims", value=lambda one: str(one[1].cells)),
    Column("mean slowdown", value=lambda one: f"{one[1].value:.2f}{around(one[1].effect)}"),
)
_PRESSURE: tuple[Column[tuple[PressureCurve, Slowdown]], ...] = (
    Column("victim", value=lambda point: point[0].victim),
    Column("antagonist", value=lambda point: point[0].antagonist),
    Column("busy (%)", value=lambda point: f"{100 * busy(point[1]):.0f}"),
    Column(
        "antagonist's rate", value=lambda point: " ".join((figure(sum(point[1].company.values())), *_units(point[1])))
    ),
    Column("slowdown", value=lambda point: _value(point[1])),
)
_GAINS: tuple[Column[FenceGain], ...] = (
    Column("victim", value=lambda gain: gain.victim),
    Column("next to", value=lambda gain: _next_to(gain.beside)),
    Column("isolated", value=lambda gain: f"{gain.fenced:.2f}"),
    Column("not isolated", value=lambda gain: f"{gain.unfenced:.2f}"),
    Column("benefit", value=lambda gain: f"{gain.value:.2f}{around(gain.effect)}"),
    Column("verdict", value=lambda gain: gain.effect.verdict),
)

_BLAME_IN_FILES: tuple[Column[tuple[str, MeanSlowdown]], ...] = (
    Column("antagonist", value=lambda one: one[0]),
    Column("victims", value=lambda one: one[1].cells),
    Column("mean slowdown", value=lambda one: one[1].value),
    *_interval(lambda one: one[1].effect),
)
_PRESSURE_IN_FILES: tuple[Column[tuple[PressureCurve, Slowdown]], ...] = (
    Column("victim", value=lambda point: point[0].victim),
    Column("antagonist", value=lambda point: point[0].antagonist),
    Column("busy (%)", value=lambda point: 100 * busy(point[1])),
    Column("antagonist's rate", value=lambda point: sum(point[1].company.values())),
    Column("antagonist's unit", value=lambda point: ", ".join(_units(point[1])) or None),
    Column("slowdown", value=lambda point: point[1].value),
    *_interval(lambda point: point[1].effect),
)
_GAINS_IN_FILES: tuple[Column[FenceGain], ...] = (
    Column("victim", value=lambda gain: gain.victim),
    Column("next to", value=lambda gain: _next_to(gain.beside)),
    Column("isolated", value=lambda gain: gain.fenced),
    Column("not isolated", value=lambda gain: gain.unfenced),
    Column("benefit", value=lambda gain: gain.value),
    *_interval(lambda gain: gain.effect),
    Column("verdict", value=lambda gain: gain.effect.verdict),
)


def _other_caches(cells: Sequence[Slowdown]) -> Iterator[str]:
    """Pairs whose data did not lie in the page cache alike, which is part of their slowdown."""
    for cell in cells:
        alone, together = (state or "not recorded" for state in cell.caches)
        if alone != together:
            yield f"{cell.name}: data cache {alone} alone, {together} with neighbors"


def pressed(cell: Slowdown) -> str:
    """The antagonists' own rates, in words; empty if packed."""
    return ", ".join(f"{name} {figure(rate)} {_unit(cell, name)}" for name, rate in cell.company.items())


def _unit(cell: Slowdown, name: str) -> str:
    return f"{cell.company_units.get(name, 'items')}/s"


def _units(cell: Slowdown) -> list[str]:
    """What the antagonists count, in their order."""
    return [_unit(cell, name) for name in cell.company]


def _company_rate(cell: Slowdown) -> Cell:
    """A number; of several antagonists, theirs in the order of their names."""
    rates = list(cell.company.values())
    return rates[0] if len(rates) == 1 else ", ".join(map(str, rates)) or None


def _without_verdict(cells: Sequence[Slowdown]) -> Iterator[str]:
    """Why cells have no star, where nobody could tell."""
    found = grouped((cell for cell in cells if cell.not_judged), lambda cell: cell.not_judged)
    for why, own in found.items():
        which = "" if len(own) == len(cells) else f" ({', '.join(cell.name for cell in own)})"
        yield f"{why}{which}"


def around(found: Effect) -> str:
    """The interval in brackets, if there is one."""
    return "" if found.ratio is None else f" ({found.ratio.low:.2f} to {found.ratio.high:.2f})"


def _required(report: Report) -> tuple[Slowdown, ...]:
    if not report.neighbours:
        raise InputError(
            f"--layout {SUITE}: {report.source} has no test of that suite that ran both alone and with "
            f"neighbors{''.join(f'; {lost.test}: {lost.why}' for lost in report.lost_cells)}; run mnb jobs "
            f"{SUITE} -o FOLDER"
        )
    return report.neighbours


def _told(mean: MeanSlowdown | None, name: str, over: str) -> str:
    if mean is None:
        return ""
    return f"{name}: {mean.value:.2f}{around(mean.effect)}, the geometric mean of {counted(mean.cells, 'test')}, {over}"


def _column(cells: Sequence[Slowdown], beside: str) -> Column[str]:
    return Column(_next_to(beside), value=lambda victim: _cell(cells, victim, beside))


def _cell(cells: Sequence[Slowdown], victim: str, beside: str) -> Cell:
    found = next((cell for cell in cells if (cell.victim, cell.beside) == (victim, beside)), None)
    if found is None:
        return NOTHING
    return _value(found)


def _value(cell: Slowdown) -> str:
    lost = f", {counted(cell.lost, 'pair')} lost" if cell.lost else ""
    return f"{cell.value:.2f}{around(cell.effect)}{' *' if cell.sure else ''}{lost}"
