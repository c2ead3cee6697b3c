"""The report for a terminal, or as plain text without one (respects ``NO_COLOR``)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.plain import plain
from milabench_ng.report.procurement.tender import Tender
from milabench_ng.report.render.cells import Fact, Tone
from milabench_ng.report.render.columns import TestColumn, columns
from milabench_ng.report.render.fitting import UNLIMITED, fitting, wrapped
from milabench_ng.report.render.sections import Section
from milabench_ng.report.render.statements import conclusion, header, isolation_fact
from milabench_ng.report.render.tables import after_tests, before_tests
from milabench_ng.report.render.tender_tables import tender_facts, tender_sections
from milabench_ng.report.report import Line, Report

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "good": "green",
    "fair": "yellow",
    "poor": "yellow",
    "bad": "red bold",
    "faint": "dim",
}
_ROWS_SHOWN = 20
_LONGEST = 120
"""Most characters in a cell."""


def write(report: Report, stream: TextIO, *, full: bool = False) -> None:
    """Write ``report`` to ``stream``. Digits are never cut off: on a terminal, texts wrap and columns are left out.

    ``full``: leave no column out.
    """
    width = shutil.get_terminal_size().columns if stream.isatty() else UNLIMITED
    console = _console(stream)
    console.print(_facts(header(report), width), "", sep="\n")
    for section in before_tests(report):
        _print(section, console)
        console.print()
    _print_tests(report, console, UNLIMITED if full else width)
    for section in after_tests(report):
        console.print()
        _print(section, console)
    console.print("", _facts(conclusion(report), width), sep="\n")
    if not report.isolated:
        console.print(_facts([isolation_fact(report)], width))


def write_tender(tender: Tender, stream: TextIO) -> None:
    """Write ``tender`` to ``stream``."""
    console = _console(stream)
    console.print(_facts(tender_facts(tender)))
    for section in tender_sections(tender):
        console.print()
        _print(section, console)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, width=UNLIMITED, highlight=False, markup=False, emoji=False)


def _facts(facts: Sequence[Fact], width: int = UNLIMITED) -> Text:
    names = max(len(fact.name) for fact in facts)
    lines = [
        Text.assemble(fact.name.ljust(names), "  ", (wrapped(plain(fact.text), width, names + 2), _STYLES[fact.tone]))
        for fact in facts
    ]
    return Text("\n").join(lines)


def _print_tests(report: Report, console: Console, width: int) -> None:
    everything = columns(report)
    kept = fitting([column.title for column in everything], [_width(column, report) for column in everything], width)
    console.print(_tests(report, [everything[place] for place in kept]))
    lacking = len(everything) - len(kept)
    if lacking:
        told = f"{lacking} columns do not fit into {width}: --full prints them all"
        console.print(Text(told, _STYLES["faint"]))


def _width(column: TestColumn, report: Report) -> int:
    """Of the column's longest line."""
    cells = (_cell(column, line, f"{report.summary.suite}.").plain for line in report.lines)
    return max(map(cell_len, (*_two_lines(column.header).splitlines(), *cells)))


def _tests(report: Report, chosen: Sequence[TestColumn]) -> Table:
    table = _empty_table()
    for column in chosen:
        table.add_column(_two_lines(column.header), justify="right" if column.number else "left", no_wrap=True)
    prefix = f"{report.summary.suite}."
    for line in report.lines:
        light = report.score is not None and not line.scored.weight
        table.add_row(*(_cell(column, line, prefix) for column in chosen), style=_STYLES["faint"] if light else "")
    return table


def _cell(column: TestColumn, line: Line, prefix: str) -> Text:
    shown = plain(column.show(column.value(line)))
    return Text(shown.removeprefix(prefix) if column.title == "test" else shown, _STYLES[column.tone_of(line)])


def _print(section: Section, console: Console) -> None:
    table = _empty_table()
    for heading in section.headings:
        table.add_column(_two_lines(plain(heading.header)), justify="right" if heading.number else "left", no_wrap=True)
    for row in section.rows[:_ROWS_SHOWN]:
        cells = zip(section.headings, row, strict=True)
        table.add_row(*(_text(_cut(heading.show(cell)), heading.tone(cell)) for heading, cell in cells))
    console.print(Text(plain(section.title), _STYLES["strong"]), table)
    hidden = len(section.rows) - _ROWS_SHOWN
    notes = [f"... and {hidden} more (all of them: --format json)"] if hidden > 0 else []
    for note in (*notes, *section.notes):
        console.print(Text(plain(note), _STYLES["faint"]))


def _cut(shown: str) -> str:
    """Truncate a long list, and say that there is more."""
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _text(shown: str, tone: Tone) -> Text:
    return Text(plain(shown), _STYLES[tone])


def _empty_table() -> Table:
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")


def _two_lines(header: str) -> str:
    """Put the unit below the title."""
    return header.replace(" (", "\n(")
