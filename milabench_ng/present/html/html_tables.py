"""Tables for a page: cells with their text, sort key and class. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

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


def cells_of(section: Section) -> Iterator[tuple[HtmlCell, ...]]:
    """Those of each row, in full."""
    for row, tones in zip(section.rows, section.toned, strict=True):
        yield tuple(_cell(*each) for each in zip(section.headings, row, tones, strict=True))


def of_tests(report: Report) -> tuple[Section, ...]:
    """The table of the tests with what decides, then those with the rest: details, and against each baseline."""
    light = tuple(report.weighted and (line.scored.weight or 0.0) < _LIGHT for line in report.lines)
    made = (section_of(title, title, report, chosen) for title, chosen in column_groups(report))
    return tuple(msgspec.structs.replace(each, light=light) for each in made)


def _cell(heading: Heading, cell: Cell, tone: Tone) -> HtmlCell:
    """Ratios have their own four colours, as in 2020."""
    empty = cell is None or (isinstance(cell, float) and math.isnan(cell))
    style = f"ratio-{tone}" if heading.tone is ratio_tone and tone not in ("plain", "faint") else tone
    return HtmlCell(heading.show(cell), "" if empty else str(cell), style, heading.number)
