"""The report for a terminal, or as plain text without one (respects ``NO_COLOR``)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal, TextIO

import msgspec
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.plain import plain
from milabench_ng.report.procurement.tender import Tender
from milabench_ng.report.render.alarms import alarms_of_launches
from milabench_ng.report.render.cells import Cell, Tone
from milabench_ng.report.render.columns import TestColumn, columns
from milabench_ng.report.render.first_screen import first_screen
from milabench_ng.report.render.fitting import WORDS, blocks, fitting
from milabench_ng.report.render.output_width import output_width
from milabench_ng.report.render.screen_lines import STYLES, fact_lines, print_alarms, print_screen
from milabench_ng.report.render.sections import Section
from milabench_ng.report.render.statements import details, isolation_fact
from milabench_ng.report.render.tables import other_tables
from milabench_ng.report.render.tender_facts import tender_facts
from milabench_ng.report.render.tender_tables import tender_sections
from milabench_ng.report.report import Line, Report

_ROWS_SHOWN = 20
_NARROW = 140
"""Below this width, a verdict gives way to other columns."""


def write(report: Report, stream: TextIO, further: Sequence[Section] = (), *, full: bool = False) -> None:
    """Write ``report`` and ``further`` tables to ``stream``.

    Nothing is cut off: on a terminal, texts wrap and columns are left out.

    ``full``: leave no column and no row out; what does not fit side by side stands below.
    """
    width = output_width(stream)
    console = _console(stream, width)
    print_screen(first_screen(report), console, width)
    _print_tests(report, console, full=full)
    for section in (*other_tables(report), *further):
        _print(section, console, full=full)
    facts = details(report, charged=full)
    if facts:
        console.print("", Text("what the numbers rest on", STYLES["strong"]), fact_lines(facts, width), sep="\n")
    write_isolation(report, stream)


def write_isolation(report: Report, stream: TextIO) -> None:
    """Write how the tenants were isolated, if they were not."""
    if not report.isolated:
        width = output_width(stream)
        _console(stream, width).print(fact_lines([isolation_fact(report)], width))


def write_alarms(report: Report, stream: TextIO) -> None:
    """Write why the launches may not be what they seem, above a table that has no first screen."""
    width = output_width(stream)
    print_alarms(alarms_of_launches(report), _console(stream, width), width)


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
    everything = columns(report, charged=full)
    widths = [_width(column, report, console.width) for column in everything]
    if full:
        for places in blocks(widths, console.width):
            console.print("", _tests(report, [everything[place] for place in places]), sep="\n")
        return
    kept = _chosen(everything, widths, console.width)
    if len(kept) < len(everything):  # then those that say nothing go first
        told = [place for place, column in enumerate(everything) if _told(column, report)]
        chosen = _chosen([everything[place] for place in told], [widths[place] for place in told], console.width)
        kept = [told[place] for place in chosen]
    console.print("", _tests(report, [everything[place] for place in kept]), sep="\n")
    if lacking := len(everything) - len(kept):
        what = f"{lacking} columns are empty or do not fit into {console.width}: --full prints them all"
        console.print(Text(what, STYLES["faint"]))


def _chosen(found: Sequence[TestColumn], widths: Sequence[int], width: int) -> list[int]:
    return fitting([column.title for column in found], widths, width)


def _told(column: TestColumn, report: Report) -> bool:
    """Whether any test has something to say in a column."""
    return any(column.value(line) is not None for line in report.lines)


def _width(column: TestColumn, report: Report, width: int) -> int:
    """Of the column's longest line; on a narrow terminal, a verdict with its reason can be wrapped."""
    cells = [cell_len(_cell(column, line, f"{report.summary.suite}.").plain) for line in report.lines]
    longest = max(cells, default=0)
    if width < _NARROW and column.title.startswith("verdict"):
        longest = min(longest, WORDS)
    return max(longest, *map(cell_len, _two_lines(column.header).splitlines()))


def _tests(report: Report, chosen: Sequence[TestColumn]) -> Table:
    table = _empty_table()
    for column in chosen:
        justify: Literal["left", "right"] = "right" if column.number else "left"
        table.add_column(
            _two_lines(column.header), justify=justify, no_wrap=column.number or column.title == "unit", overflow="fold"
        )
    prefix = f"{report.summary.suite}."
    for line in report.lines:
        light = report.weighted and not line.scored.weight
        table.add_row(*(_cell(column, line, prefix) for column in chosen), style=STYLES["faint"] if light else "")
    return table


def _cell(column: TestColumn, line: Line, prefix: str) -> Text:
    shown = plain(column.show(column.value(line)))
    return Text(shown.removeprefix(prefix) if column.title == "test" else shown, STYLES[column.tone_of(line)])


def _print(section: Section, console: Console, *, full: bool) -> None:
    """The table below its title; what is too wide even if texts wrap stands in several blocks."""
    section = section if full else _brief(section)
    console.print("", Text(plain(section.title), STYLES["strong"]), sep="\n")
    rows = section.rows if full else section.rows[:_ROWS_SHOWN]
    heads = [_two_lines(plain(heading.header)) for heading in section.headings]
    if len(blocks(_widest(section, heads, rows), console.width)) > 1:
        heads = [_narrow(head) for head in heads]
    for places in _parts(section, heads, rows, console.width):
        console.print(_table(section, heads, rows, places))
    hidden = len(section.rows) - len(rows)
    notes = [f"... and {hidden} more (all of them: --full)"] if hidden > 0 else []
    for note in (*notes, *section.notes):
        console.print(Text(plain(note), STYLES["faint"]))


def _brief(section: Section) -> Section:
    """Without the columns that only ``--full`` shows."""
    kept = [place for place, heading in enumerate(section.headings) if not heading.detail]
    return msgspec.structs.replace(
        section,
        headings=tuple(section.headings[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in section.rows),
    )


def _parts(section: Section, heads: Sequence[str], rows: Sequence[tuple[Cell, ...]], width: int) -> list[list[int]]:
    """The places of the columns in blocks that fit if numbers stay whole and texts wrap after a few words."""
    widest = _widest(section, heads, rows)
    least = [
        most if heading.number else min(most, WORDS) for heading, most in zip(section.headings, widest, strict=True)
    ]
    return blocks(least, width)


def _widest(section: Section, heads: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> list[int]:
    """The width of each column's longest line."""
    shown = ([plain(heading.show(row[place])) for row in rows] for place, heading in enumerate(section.headings))
    return [max(map(cell_len, (*head.splitlines(), *cells))) for head, cells in zip(heads, shown, strict=True)]


def _table(section: Section, heads: Sequence[str], rows: Sequence[tuple[Cell, ...]], places: Sequence[int]) -> Table:
    table = _empty_table()
    chosen = [section.headings[place] for place in places]
    for place, heading in zip(places, chosen, strict=True):
        justify: Literal["left", "right"] = "right" if heading.number else "left"
        table.add_column(heads[place], justify=justify, no_wrap=heading.number, overflow="fold")
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


def _narrow(head: str) -> str:
    """Break a heading between words, so that a column is hardly wider than what it holds."""
    return "\n".join(textwrap.fill(line, WORDS, break_long_words=False) for line in head.splitlines())
