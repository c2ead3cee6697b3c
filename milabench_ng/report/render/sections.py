"""A table as a value: title, columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

from milabench_ng.report.render.cells import Cell, Tone, text

T = TypeVar("T")


class Heading(msgspec.Struct, frozen=True):
    """The heading of a section's column."""

    title: str
    unit: str = ""
    """Empty for a plain number or text; ``unit/s`` refers to the unit in the row's unit column."""
    show: Callable[[Cell], str] = text
    number: bool = False
    tone: Callable[[Cell], Tone] = lambda _: "plain"
    detail: bool = False
    """Whether a terminal shows it with ``--full`` only."""

    @property
    def header(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Column(Heading, Generic[T], frozen=True, kw_only=True):
    """A heading, and the value below it for each item of a table."""

    value: Callable[[T], Cell]
    light: Callable[[T], Cell] = lambda _: None
    """Whether an item's cell is grey, since it does not count."""

    def tone_of(self, item: T) -> Tone:
        """The tone of an item's cell."""
        return "faint" if self.light(item) else self.tone(self.value(item))


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    key: str
    """Names its file if every table is written to one."""
    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def section(key: str, title: str, items: Iterable[T], *columns: Column[T], notes: tuple[str, ...] = ()) -> Section:
    """The section with a row for each item."""
    rows = tuple(tuple(column.value(item) for column in columns) for item in items)
    return Section(key=key, title=title, headings=columns, rows=rows, notes=notes)
