"""What neighbours cost: slowdowns of victims beside antagonists, and packed with themselves. Pure.

A victim is a test that ran alone (``"company": "none"``). Other tests with its options ran beside something: beside an
antagonist, or packed, on all devices at the same time. The slowdown is the rate alone over the rate in company, of the
same device in the same repeat, so that what differs between devices cancels, and drift nearly so. Intervals and
verdicts rest on the logarithms of these pairs, of packed victims on their means by repeat, since launches at the same
moment share the node's state; p values are adjusted over the whole matrix (Holm). ``scripts/simulate-decisions`` shows
how often they are wrong. The terms are those of Bubble-Up (Mars et al., MICRO 2011).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.grouping import grouped
from milabench_ng.report.layouts.layout import SuiteLayout, chosen
from milabench_ng.report.render.cells import Cell, counted, figure
from milabench_ng.report.render.sections import Column, Section, section
from milabench_ng.report.report import Line, Report
from milabench_ng.report.statistics.effects import Effect, effects
from milabench_ng.report.statistics.intervals import LogStat, log_stat
from milabench_ng.stats import mean

SUITE = "interference"
PACKED = "packed"
NOTE = "rate alone / rate in company, with its 95 % interval; *: slower beyond doubt, by more than 2 %"
NOTHING = "-"


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of the matrix."""

    victim: str
    beside: str
    """The antagonists, or `PACKED`."""
    test: str
    alone: float
    together: float
    """Mean rates of the pairs, in items per second."""
    unit: str
    pressed: str
    """The antagonists' own rates, in words; empty if packed."""
    stat: LogStat
    """Of the rate alone over that in company: by device and repeat, or by repeat if packed."""
    pairs: int
    lost: int
    """Pairs without two rates, such as those of failed launches; a victim that starved is among them."""
    effect: Effect

    @property
    def value(self) -> float:
        """The geometric mean of the pairs."""
        return math.exp(self.stat.mean)

    @property
    def sure(self) -> bool:
        """Whether it is slower beyond doubt, and by more than the margin."""
        return self.effect.verdict == "better"


def slowdowns(report: Report) -> tuple[Slowdown, ...]:
    """All cells, victim by victim. Raises InputError for a report in which no test ran alone."""
    cells = [
        (victim, line, stat)
        for victim in chosen(report, SUITE, lambda line: line.row.company == {})
        for line in report.lines
        if _same_work(victim, line) and (stat := log_stat(_independent(line, _pairs(victim, line))))
    ]
    found = effects([[(1.0, stat)] for *_, stat in cells])
    return tuple(_slowdown(*cell, one) for cell, one in zip(cells, found, strict=True))


def cost_of_neighbours(cells: Sequence[Slowdown]) -> str:
    """The mean slowdown of the victims that were packed, in words; empty if none was."""
    packed = [cell for cell in cells if cell.beside == PACKED]
    if not packed:
        return ""
    stats = [(1 / len(packed), cell.stat) for cell in packed]
    (found,) = effects([stats])
    slower = math.exp(sum(weight * stat.mean for weight, stat in stats))
    return f"cost of neighbours: {slower:.2f}{_around(found)}, the geometric mean of {counted(len(packed))}, packed"


def table(report: Report) -> Section:
    """A row for each cell."""
    return section(SUITE, "Interference", slowdowns(report), *_COLUMNS)


def tables(report: Report) -> tuple[Section, ...]:
    """The matrix: a row for each victim, a column for each antagonist."""
    cells = slowdowns(report)
    victims = list(dict.fromkeys(cell.victim for cell in cells))
    columns = [
        _column(cells, beside)
        for beside in dict.fromkeys(cell.beside for cell in sorted(cells, key=lambda cell: cell.beside != PACKED))
    ]
    return (
        section(
            "matrix",
            "Slowdown",
            victims,
            Column[str]("victim", value=str),
            *columns,
            notes=tuple(note for note in (cost_of_neighbours(cells), NOTE) if note),
        ),
        section("pressed", "Antagonists", cells, *_PRESSED),
    )


LAYOUT = SuiteLayout(table=table, tables=tables)

_COLUMNS: tuple[Column[Slowdown], ...] = (
    Column("victim", value=lambda cell: cell.victim),
    Column("beside", value=lambda cell: cell.beside),
    Column("slowdown", value=lambda cell: f"{cell.value:.4f}"),
    Column("low 95 %", value=lambda cell: _edge(cell, "low")),
    Column("high 95 %", value=lambda cell: _edge(cell, "high")),
    Column("p", value=lambda cell: NOTHING if cell.effect.p is None else f"{cell.effect.p:.2g}"),
    Column("slower beyond doubt", value=lambda cell: "yes" if cell.sure else "no"),
    Column("pairs", value=lambda cell: str(cell.pairs)),
    Column("pairs lost", value=lambda cell: str(cell.lost)),
    Column("alone", value=lambda cell: figure(cell.alone)),
    Column("in company", value=lambda cell: figure(cell.together)),
    Column("unit", value=lambda cell: f"{cell.unit}/s"),
    Column("company's rate", value=lambda cell: cell.pressed or NOTHING),
    Column("test", value=lambda cell: cell.test),
)
_PRESSED: tuple[Column[Slowdown], ...] = (
    Column("test", value=lambda cell: cell.test),
    Column("alone", value=lambda cell: f"{figure(cell.alone)} {cell.unit}/s"),
    Column("in company", value=lambda cell: f"{figure(cell.together)} {cell.unit}/s"),
    Column("company's rate (items/s)", value=lambda cell: cell.pressed or NOTHING),
)


def _name(line: Line) -> str:
    return line.scored.test.partition(".")[2]


def _same_work(victim: Line, line: Line) -> bool:
    return line.row.company != {} and bool(line.row.options) and _work(victim) == _work(line)


def _work(line: Line) -> tuple[object, ...]:
    row = line.row
    return row.workload, row.options, row.precision, row.data, row.scheme


def _pairs(victim: Line, line: Line) -> dict[str, float]:
    """The slowdown by job id."""
    alone, together = victim.row.launches, line.row.launches
    return {job: alone[job] / rate for job, rate in together.items() if job in alone and rate > 0}


def _independent(line: Line, pairs: Mapping[str, float]) -> list[float]:
    """Slowdowns from different batches: a victim beside an antagonist has one launch in each, a packed one has many."""
    if line.row.company is not None:
        return list(pairs.values())
    by_repeat = grouped(pairs, lambda job: job.partition(".")[0])
    return [math.exp(mean([math.log(pairs[job]) for job in jobs])) for jobs in by_repeat.values()]


def _slowdown(victim: Line, line: Line, stat: LogStat, found: Effect) -> Slowdown:
    company = line.row.company or {}
    jobs = [job for job in line.row.launches if job in victim.row.launches]
    pairs = len(_pairs(victim, line))
    return Slowdown(
        victim=_name(victim),
        beside=", ".join(company) or PACKED,
        pairs=pairs,
        lost=max(victim.row.n, line.row.n) - pairs,
        test=_name(line),
        alone=mean([victim.row.launches[job] for job in jobs]),
        together=mean([line.row.launches[job] for job in jobs]),
        unit=line.row.unit,
        pressed=", ".join(f"{name} {figure(rate)}" for name, rate in company.items()),
        stat=stat,
        effect=found,
    )


def _edge(cell: Slowdown, name: str) -> Cell:
    ratio = cell.effect.ratio
    return NOTHING if ratio is None else f"{getattr(ratio, name):.4f}"


def _column(cells: Sequence[Slowdown], beside: str) -> Column[str]:
    return Column(beside, value=lambda victim: _cell(cells, victim, beside))


def _cell(cells: Sequence[Slowdown], victim: str, beside: str) -> Cell:
    found = next((cell for cell in cells if (cell.victim, cell.beside) == (victim, beside)), None)
    if found is None:
        return NOTHING
    lost = f", {found.lost} pairs lost" if found.lost else ""
    return f"{found.value:.2f}{_around(found.effect)}{' *' if found.sure else ''}{lost}"


def _around(found: Effect) -> str:
    return "" if found.ratio is None else f" ({found.ratio.low:.2f} to {found.ratio.high:.2f})"
