"""The report as Markdown, for issues and wikis."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TextIO

from milabench_ng.model.plain import plain, plain_lines
from milabench_ng.present.render.alarms import alarms_of_launches
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.render.columns import columns, section_of_tests
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.sections import Document, Section
from milabench_ng.present.render.statements import details, isolation_fact
from milabench_ng.present.render.tables import other_tables
from milabench_ng.report.report import Report

_MARKUP = re.compile(r"[\\`*_|\[\]]")
"""What makes emphasis, code, cells, links and pictures."""


def write(report: Report, stream: TextIO) -> None:
    stream.write(f"# mnb report: {_plain(report.summary.suite)}\n\n")
    screen = first_screen(report)
    _facts((Fact("measured", screen.when), *screen.facts), stream)
    write_section(section_of_tests(report, columns(report)), stream)
    for section in other_tables(report):
        write_section(section, stream)
    _facts(details(report), stream)
    write_isolation(report, stream)


def write_alarms(report: Report, stream: TextIO) -> None:
    """Write why the launches may not be what they seem, above a table that has no first screen."""
    if found := alarms_of_launches(report):
        _facts(found, stream)


def write_isolation(report: Report, stream: TextIO) -> None:
    """Write what the launches were not held by, if anything."""
    if report.not_isolated:
        stream.write(f"**isolation: {_plain(isolation_fact(report).text)}**\n")


def write_document(document: Document, stream: TextIO) -> None:
    stream.write(f"# {_plain(document.title)}\n\n")
    for part in document.parts:
        if isinstance(part, Section):
            write_section(part, stream)
            continue
        stream.write(f"## {_plain(part.title)}\n\n" if part.title else "")
        stream.write(
            "".join(f"    {line}\n" for line in plain_lines(part.text).splitlines()) + "\n" if part.text else ""
        )
        _facts(part.facts, stream)


def write_section(section: Section, stream: TextIO) -> None:
    """Write one table to ``stream``, below its title."""
    stream.write(f"## {_plain(section.title)}\n\n" if section.title else "")
    stream.write(_row(heading.header for heading in section.headings))
    stream.write(_row("---:" if heading.number else ":---" for heading in section.headings))
    for row in section.rows:
        stream.write(_row(heading.show(cell) for heading, cell in zip(section.headings, row, strict=True)))
    stream.write("".join(f"\n{_plain(note)}\n" for note in section.notes) + "\n")


def _facts(facts: Iterable[Fact], stream: TextIO) -> None:
    for fact in facts:
        stream.write(f"- {fact.name}: {_plain(fact.text)}\n" if fact.name else f"    - {_plain(fact.text)}\n")
    stream.write("\n")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |\n"


def _plain(text: str) -> str:
    """Escape what Markdown would parse."""
    return _MARKUP.sub(r"\\\g<0>", plain(text.replace("\n", " "))).replace("<", "&lt;")
