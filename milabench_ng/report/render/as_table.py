"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.plain import plain
from milabench_ng.report.render.alarms import alarms_of_launches
from milabench_ng.report.render.columns import TestColumn, columns
from milabench_ng.report.render.first_screen import first_screen
from milabench_ng.report.render.fitting import WORDS, blocks, fitting
from milabench_ng.report.render.screen_lines import print_alarms, print_screen
from milabench_ng.report.render.sections import Facts, Section
from milabench_ng.report.render.statements import details, isolation_fact
from milabench_ng.report.render.tables import other_tables
from milabench_ng.report.render.terminal import (
    STYLES,
    add_column,
    console_of,
    empty_table,
    print_section,
    two_lines,
    write_parts,
)
from milabench_ng.report.report import Line, Report

_ROWS_SHOWN = 20
_NARROW = 140
"""Below this width, a verdict gives way to other columns."""


def write(report: Report, stream: TextIO, further: Sequence[Section] = (), *, full: bool = False) -> None:
    """Write ``report`` and ``further`` tables to ``stream``.

    Nothing is cut off: on a terminal, texts wrap and columns are left out.

    ``full``: leave no column and no row out; what does not fit side by side stands below.
    """
    console = console_of(stream)
    print_screen(first_screen(report), console, console.width)
    _print_tests(report, console, full=full)
    for section in (*other_tables(report), *further):
        console.print()
        print_section(_whole(section) if full else _brief(section), console)
    if facts := details(report, charged=full):
        console.print()
        write_parts([Facts(title="what the numbers rest on", facts=tuple(facts))], stream)
    write_isolation(report, stream)


def write_sections(sections: Sequence[Section], stream: TextIO) -> None:
    """Write tables one below the other, with all their rows and columns."""
    console = console_of(stream)
    for section in sections:
        console.print()
        print_section(_whole(section), console)


def write_isolation(report: Report, stream: TextIO) -> None:
    """Write how the tenants were isolated, if they were not."""
    if not report.isolated:
        write_parts([Facts(facts=(isolation_fact(report),))], stream)


def write_alarms(report: Report, stream: TextIO) -> None:
    """Write why the launches may not be what they seem, above a table that has no first screen."""
    console = console_of(stream)
    print_alarms(alarms_of_launches(report), console, console.width)


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
    return max(longest, *map(cell_len, two_lines(column.header).splitlines()))


def _tests(report: Report, chosen: Sequence[TestColumn]) -> Table:
    table = empty_table()
    for column in chosen:
        add_column(table, two_lines(column.header), column, whole=column.number or column.title == "unit")
    prefix = f"{report.summary.suite}."
    for line in report.lines:
        light = report.weighted and not line.scored.weight
        table.add_row(*(_cell(column, line, prefix) for column in chosen), style=STYLES["faint"] if light else "")
    return table


def _cell(column: TestColumn, line: Line, prefix: str) -> Text:
    shown = plain(column.show(column.value(line)))
    return Text(shown.removeprefix(prefix) if column.title == "test" else shown, STYLES[column.tone_of(line)])


def _brief(section: Section) -> Section:
    """Its first rows."""
    hidden = len(section.rows) - _ROWS_SHOWN
    if hidden <= 0:
        return section
    notes = (f"... and {hidden} more (all of them: --full)", *section.notes)
    return msgspec.structs.replace(section, rows=section.rows[:_ROWS_SHOWN], notes=notes)


def _whole(section: Section) -> Section:
    """With no column that could be spared."""
    headings = tuple(msgspec.structs.replace(heading, spare=0) for heading in section.headings)
    return msgspec.structs.replace(section, headings=headings)
