"""Tables for a page: cells with their text, sort key and class. Pure."""

from __future__ import annotations

import math

import msgspec

from milabench_ng.report.render.cells import Cell, Tone, ratio_tone
from milabench_ng.report.render.columns import TestColumn, column_groups
from milabench_ng.report.render.sections import Heading, Section
from milabench_ng.report.report import Line, Report

_LIGHT = 1.0
"""Tests with a lower weight are grey, as in 2020."""


class HtmlCell(msgspec.Struct, frozen=True):
    """One cell."""

    text: str
    key: str
    """The sort key; empty for what was not measured, which sorts last."""
    tone: str
    number: bool


class HtmlTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    key: str
    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[HtmlCell, ...], ...]
    light: tuple[bool, ...] = ()
    """Whether each row is grey; empty if none is."""
    notes: tuple[str, ...] = ()


def of_section(section: Section) -> HtmlTable:
    """Convert a section, in full."""
    return HtmlTable(
        key=section.key,
        title=section.title,
        headings=section.headings,
        rows=tuple(
            tuple(_cell(heading, cell) for heading, cell in zip(section.headings, row, strict=True))
            for row in section.rows
        ),
        notes=section.notes,
    )


def of_tests(report: Report) -> tuple[tuple[HtmlTable, ...], tuple[HtmlTable, ...]]:
    """The table of the tests with what decides, and the tables with the rest: details, and against each baseline."""
    light = tuple(report.weighted and _is_light(line) for line in report.lines)
    first, *rest = (
        HtmlTable(
            key=title,
            title=title,
            headings=chosen,
            rows=tuple(tuple(_test_cell(column, line) for column in chosen) for line in report.lines),
            light=light,
        )
        for title, chosen in column_groups(report)
    )
    return (first,), tuple(rest)


def _test_cell(column: TestColumn, line: Line) -> HtmlCell:
    """A cell of the test table; grey if it does not count."""
    cell = _cell(column, column.value(line))
    return msgspec.structs.replace(cell, tone="faint") if column.tone_of(line) == "faint" else cell


def _is_light(line: Line) -> bool:
    return (line.scored.weight or 0.0) < _LIGHT


def _cell(heading: Heading, cell: Cell) -> HtmlCell:
    empty = cell is None or (isinstance(cell, float) and math.isnan(cell))
    return HtmlCell(heading.show(cell), "" if empty else str(cell), _class(heading, cell), heading.number)


def _class(heading: Heading, cell: Cell) -> str:
    """The CSS class; ratios have their own four colours, as in 2020."""
    tone: Tone = heading.tone(cell)
    return f"ratio-{tone}" if heading.tone is ratio_tone and tone != "plain" else tone
