"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import msgspec

from milabench_ng.present.render.alarms import alarms_of_launches
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.render.columns import all_columns, columns, section_of_tests
from milabench_ng.present.render.first_screen import DETAILS, first_screen
from milabench_ng.present.render.screen_lines import print_alarms, print_screen
from milabench_ng.present.render.sections import Facts, Section
from milabench_ng.present.render.statements import details, isolation_fact
from milabench_ng.present.render.tables import other_tables
from milabench_ng.present.render.terminal import console_of, print_section, write_parts
from milabench_ng.report.report import Report

_ROWS_SHOWN = 20


def write(report: Report, stream: TextIO, further: Sequence[Section] = (), *, full: bool = False) -> None:
    """Write ``report`` and ``further`` tables to ``stream``.

    Nothing is cut off: on a terminal, texts wrap and columns are left out.

    ``full``: leave no column and no row out; what does not fit side by side stands below.
    """
    console = console_of(stream)
    screen = first_screen(report)
    commands = tuple(one for one in screen.commands if not full or one.name != DETAILS)
    print_screen(msgspec.structs.replace(screen, commands=commands), console, console.width)
    console.print()
    tests = section_of_tests(report, all_columns(report) if full else columns(report))
    print_section(_whole(tests) if full else tests, console, "--full shows all columns")
    others = (*other_tables(report), *further)
    for section in others:
        if full or not section.detail:
            console.print()
            print_section(_whole(section) if full else _brief(section), console)
    facts = [fact for fact in details(report, charged=full) if full or fact.tone != "plain"]
    if facts:
        console.print()
        write_parts([Facts(title="Basis and caveats" if full else "Caveats", facts=tuple(facts))], stream)
    left_out = [section.title for section in others if section.detail]
    if left_out and not full:
        console.print()
        write_parts([Facts(facts=(Fact("--full", f"also prints {', '.join(left_out)}", "faint"),))], stream)
    write_isolation(report, stream)


def write_sections(sections: Sequence[Section], stream: TextIO) -> None:
    """Write tables one below the other, with all their rows and columns."""
    console = console_of(stream)
    for section in sections:
        console.print()
        print_section(_whole(section), console)


def write_isolation(report: Report, stream: TextIO) -> None:
    """Write how the tenants were isolated, if they were not."""
    if report.not_isolated:
        write_parts([Facts(facts=(isolation_fact(report),))], stream)


def write_alarms(report: Report, stream: TextIO) -> None:
    """Write why the launches may not be what they seem, above a table that has no first screen."""
    console = console_of(stream)
    print_alarms(alarms_of_launches(report), console, console.width)


def _brief(section: Section) -> Section:
    """Its first rows."""
    hidden = len(section.rows) - _ROWS_SHOWN
    if hidden <= 0:
        return section
    notes = (f"... and {hidden} more (--full shows all)", *section.notes)
    return msgspec.structs.replace(
        section, rows=section.rows[:_ROWS_SHOWN], tones=section.tones[:_ROWS_SHOWN], notes=notes
    )


def _whole(section: Section) -> Section:
    """With no column that could be spared."""
    headings = tuple(msgspec.structs.replace(heading, spare=0) for heading in section.headings)
    return msgspec.structs.replace(section, headings=headings)
