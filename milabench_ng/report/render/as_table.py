"""The report for a terminal, or as plain text without one (respects ``NO_COLOR``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.plain import plain
from milabench_ng.report.procurement.tender import Tender
from milabench_ng.report.render.cells import Cell, Tone
from milabench_ng.report.render.columns import TestColumn, columns
from milabench_ng.report.render.first_screen import first_screen
from milabench_ng.report.render.fitting import WORDS, blocks, fitting
from milabench_ng.report.render.output_width import output_width
from milabench_ng.report.render.screen_lines import STYLES, fact_lines, print_screen
from milabench_ng.report.render.sections import Section
from milabench_ng.report.render.statements import details, isolation_fact
from milabench_ng.report.render.tables import other_tables
from milabench_ng.report.render.tender_tables import tender_facts, tender_sections
from milabench_ng.report.report import Line, Report

_ROWS_SHOWN = 20


def write(report: Report, stream: TextIO, *, full: bool = False) -> None:
    """Write ``report`` to ``stream``. Nothing is cut off: on a terminal, texts wrap and columns are left out.

    ``full``: leave no column and no row out; what does not fit side by side stands below.
    """
    width = output_width(stream)
    console = _console(stream, width)
    print_screen(first_screen(report), console, width)
    _print_tests(report, console, full=full)
    for section in other_tables(report):
        _print(section, console, full=full)
    facts = details(report)
    if facts:
        console.print("", Text("what the numbers rest on", STYLES["strong"]), fact_lines(facts, width), sep="\n")
    write_isolation(report, stream)


def write_isolation(report: Report, stream: TextIO) -> None:
    """Write how the tenants were isolated, if they were not."""
    if not report.isolated:
        width = output_width(stream)
        _console(stream, width).print(fact_lines([isolation_fact(report)], width))


def write_sections(sections: Sequence[Section], stream: TextIO) -> None:
    """Write tables one below the other, with all their rows."""
    console = _console(stream, output_width(stream))
    for section in sections:
        _print(section, console, full=True)


def write_tender(tender: Tender, stream: TextIO) -> None:
    """Write ``tender`` to ``stream``."""
    width = output_width(stream)
    console = _console(stream, width)
    console.print(fact_lines(tender_facts(tender), width))
    for section in tender_sections(tender):
        _print(section, console, full=False)


def _console(stream: TextIO, width: int) -> Console:
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def _print_tests(report: Report, console: Console, *, full: bool) -> None:
    everything = columns(report)
    widths = [_width(column, report) for column in everything]
    kept = fitting([column.title for column in everything], widths, console.width)
    for places in blocks(widths, console.width) if full else [kept]:
        console.print("", _tests(report, [everything[place] for place in places]), sep="\n")
    lacking = len(everything) - len(kept)
    if lacking and not full:
        told = f"{lacking} columns do not fit into {console.width}: --full prints them all"
        console.print(Text(told, STYLES["faint"]))


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
        table.add_row(*(_cell(column, line, prefix) for column in chosen), style=STYLES["faint"] if light else "")
    return table


def _cell(column: TestColumn, line: Line, prefix: str) -> Text:
    shown = plain(column.show(column.value(line)))
    return Text(shown.removeprefix(prefix) if column.title == "test" else shown, STYLES[column.tone_of(line)])


def _print(section: Section, console: Console, *, full: bool) -> None:
    """The table below its title; what is too wide even if texts wrap stands in several blocks."""
    console.print("", Text(plain(section.title), STYLES["strong"]), sep="\n")
    rows = section.rows if full else section.rows[:_ROWS_SHOWN]
    for places in blocks([_least(section, rows, place) for place in range(len(section.headings))], console.width):
        console.print(_table(section, rows, places))
    hidden = len(section.rows) - len(rows)
    notes = [f"... and {hidden} more (all of them: --full)"] if hidden > 0 else []
    for note in (*notes, *section.notes):
        console.print(Text(plain(note), STYLES["faint"]))


def _least(section: Section, rows: Sequence[tuple[Cell, ...]], place: int) -> int:
    """The width below which a column cannot be read: of its longest number, or of a few words."""
    heading = section.headings[place]
    head = max(map(cell_len, _two_lines(plain(heading.header)).splitlines()))
    cells = max((cell_len(plain(heading.show(row[place]))) for row in rows), default=0)
    return max(head, cells) if heading.number else min(max(head, cells), WORDS)


def _table(section: Section, rows: Sequence[tuple[Cell, ...]], places: Sequence[int]) -> Table:
    table = _empty_table()
    chosen = [section.headings[place] for place in places]
    for heading in chosen:
        justify: Literal["left", "right"] = "right" if heading.number else "left"
        table.add_column(_two_lines(plain(heading.header)), justify=justify, no_wrap=heading.number, overflow="fold")
    for row in rows:
        cells = zip(chosen, (row[place] for place in places), strict=True)
        table.add_row(*(_text(heading.show(cell), heading.tone(cell)) for heading, cell in cells))
    return table


def _text(shown: str, tone: Tone) -> Text:
    return Text(plain(shown), STYLES[tone])


def _empty_table() -> Table:
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")


def _two_lines(header: str) -> str:
    """Put the unit below the title."""
    return header.replace(" (", "\n(")
