"""Tables for a page: cells with their text, sort key and class. Pure."""

from __future__ import annotations

import math

import msgspec

from milabench_ng.present.render.cells import Cell, Tone, ratio_tone
from milabench_ng.present.render.columns import column_groups, section_of
from milabench_ng.present.render.sections import Heading, Section
from milabench_ng.report.report import Report

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


def of_section(section: Section, light: tuple[bool, ...] = ()) -> HtmlTable:
    """Convert a section, in full."""
    return HtmlTable(
        key=section.key,
        title=section.title,
        headings=section.headings,
        rows=tuple(
            tuple(_cell(*each) for each in zip(section.headings, row, tones, strict=True))
            for row, tones in zip(section.rows, section.toned, strict=True)
        ),
        light=light,
        notes=section.notes,
    )


def of_tests(report: Report) -> tuple[tuple[HtmlTable, ...], tuple[HtmlTable, ...]]:
    """The table of the tests with what decides, and the tables with the rest: details, and against each baseline."""
    light = tuple(report.weighted and (line.scored.weight or 0.0) < _LIGHT for line in report.lines)
    first, *rest = (
        of_section(section_of(title, title, report, chosen), light) for title, chosen in column_groups(report)
    )
    return (first,), tuple(rest)


def _cell(heading: Heading, cell: Cell, tone: Tone) -> HtmlCell:
    """Ratios have their own four colours, as in 2020."""
    empty = cell is None or (isinstance(cell, float) and math.isnan(cell))
    style = f"ratio-{tone}" if heading.tone is ratio_tone and tone not in ("plain", "faint") else tone
    return HtmlCell(heading.show(cell), "" if empty else str(cell), style, heading.number)
