"""What a command prints, as values: tables (title, columns and rows), named statements, documents of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Literal, TypeVar

import msgspec

from milabench_ng.present.render.cells import Cell, Fact, Tone, text

T = TypeVar("T")

Form = Literal["table", "json", "csv", "markdown"]


class Heading(msgspec.Struct, frozen=True):
    """The heading of a section's column."""

    title: str
    unit: str = ""
    """Empty for a plain number or text; ``unit/s`` refers to the unit in the row's unit column."""
    show: Callable[[Cell], str] = text
    number: bool = False
    tone: Callable[[Cell], Tone] = lambda _: "plain"
    spare: int = 0
    """When it gives way on a narrow terminal: the highest number first, 0 never."""
    words: int = 36
    """To how many characters its texts are wrapped before a column gives way."""
    key: str = ""
    """Its header in CSV, where that is another one: titles may change, and programs rely on these."""

    @property
    def header(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def name(self) -> str:
        """Its header in CSV."""
        return self.key or self.header


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

    key: str = ""
    """Names its file if every table is written to one."""
    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    tones: tuple[tuple[Tone, ...], ...] = ()
    """Those of the cells, where the headings alone do not say them."""
    notes: tuple[str, ...] = ()
    sparse: bool = False
    """Whether a terminal leaves out the columns in which no row has a value."""
    detail: bool = False
    """Whether it only explains what is printed above it: a terminal leaves it out unless it is to print everything."""
    light: tuple[bool, ...] = ()
    """Whether each row is grey on a page; empty if none is."""

    @property
    def toned(self) -> tuple[tuple[Tone, ...], ...]:
        """The tones of all cells."""
        tones = [heading.tone for heading in self.headings]
        return self.tones or tuple(tuple(map(lambda of, cell: of(cell), tones, row)) for row in self.rows)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Named statements; one without a name goes on with the one before."""

    title: str = ""
    text: str = ""
    """Lines above them."""
    facts: tuple[Fact, ...] = ()


Part = Section | Facts


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All that a command prints, in every form."""

    title: str
    parts: tuple[Part, ...]
    """For people, in this order."""
    table: Section
    """For CSV, which holds one."""
    aside: tuple[Fact, ...] = ()
    """What must be known of the table, and has no place in CSV: it goes to the error output."""
    whole: object
    """For JSON."""


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> Facts:
    """Statements without a tone."""
    return Facts(title=title, facts=tuple(Fact(name, told) for name, told in pairs))


def in_one_table(parts: Iterable[Part]) -> Section:
    """All that ``parts`` say, a row for each statement and each cell that has a value."""
    rows: list[tuple[Cell, ...]] = []
    title, name = "", ""
    for part in parts:
        title = part.title or (title if isinstance(part, Section) else "")
        if isinstance(part, Facts):
            rows += [(title, "", "text", part.text)] if part.text else []
            for fact in part.facts:
                name = fact.name or name
                rows.append((title, "", name, fact.text))
            continue
        for row in part.rows:
            name = str(row[0]) or name
            cells = zip(part.headings[1:], row[1:], strict=True)
            rows += [(title, name, heading.name, cell) for heading, cell in cells if cell not in (None, "")]
    return table("", rows, "part", "of", "what", "value")


def table(
    title: str, rows: Iterable[tuple[Cell, ...]], *headings: Heading | str, notes: tuple[str, ...] = ()
) -> Section:
    """The section of these rows, without empty columns on a terminal."""
    heads = tuple(Heading(each) if isinstance(each, str) else each for each in headings)
    return Section(title=title, headings=heads, rows=tuple(rows), notes=notes, sparse=True)


def section(
    key: str, title: str, items: Iterable[T], *columns: Column[T], notes: tuple[str, ...] = (), detail: bool = False
) -> Section:
    listed = tuple(items)
    return Section(
        key=key,
        title=title,
        headings=columns,
        rows=tuple(tuple(column.value(item) for column in columns) for item in listed),
        tones=tuple(tuple(column.tone_of(item) for column in columns) for item in listed),
        notes=notes,
        detail=detail,
    )
