"""A table as a value: title, columns and rows."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from milabench_ng.report.render.cells import Cell, Tone, text


class Heading(msgspec.Struct, frozen=True):
    """The heading of a section's column."""

    title: str
    unit: str = ""
    show: Callable[[Cell], str] = text
    number: bool = False
    tone: Callable[[Cell], Tone] = lambda _: "plain"

    @property
    def header(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    key: str
    """Names its file if every table is written to one."""
    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
