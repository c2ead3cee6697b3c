"""Parts of documents laid out for a terminal, or as plain text without one (respects ``NO_COLOR``).

Nothing is cut off: on a terminal texts wrap, columns that can be spared are left out, and what is still too wide stands
in several tables below each other.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.model.plain import plain, plain_lines
from milabench_ng.present.render.cells import Fact, Tone
from milabench_ng.present.render.fitting import GAP, UNLIMITED, WORDS, blocks, fitting, wrapped
from milabench_ng.present.render.sections import Facts, Heading, Part, Section

_LONGEST_NAME = 40
"""Characters of a name that is not broken."""
STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "good": "green",
    "fair": "yellow",
    "poor": "yellow",
    "bad": "red bold",
    "faint": "dim",
}


def console_of(stream: TextIO) -> Console:
    """Prints text as it is: no markup, no cut lines; rich would cut them to fit what it guesses of a pipe."""
    width = shutil.get_terminal_size().columns if stream.isatty() else UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def write_parts(parts: Sequence[Part], stream: TextIO) -> None:
    """Write ``parts`` one below the other, with all their rows."""
    console = console_of(stream)
    for place, part in enumerate(parts):
        if place:
            console.print()
        if isinstance(part, Facts):
            _print_facts(part, console)
        else:
            print_section(part, console)


def print_section(
    section: Section, console: Console, elsewhere: str = "shown in a wider terminal or in a file"
) -> None:
    """The table below its title; what is too wide even if texts wrap stands in several blocks.

    ``elsewhere``: where the columns are that have no room here.
    """
    if section.title:
        console.print(Text(plain(section.title), STYLES["strong"]))
    if section.sparse:
        section = _of(section, [place for place in range(len(section.headings)) if _told(section, place)])
    kept = _fitting(section, console.width)
    shown = _of(section, kept)
    heads = [_two_lines(plain(heading.header)) for heading in shown.headings]
    widest = _widest(shown, heads)
    if len(blocks(widest, console.width)) > 1:
        heads = [_narrow(head) for head in heads]
        widest = _widest(shown, heads)
    least = _at_least(shown, widest)
    for block, places in enumerate(blocks(least, console.width)):
        if block:
            console.print()
        _print_table(_table(_of(shown, places), [heads[place] for place in places], console.width), console)
    gone = [heading.title for place, heading in enumerate(section.headings) if place not in kept]
    told = [f"{', '.join(gone)}: {elsewhere}"] if gone else []
    for note in (*told, *section.notes):
        console.print(Text(plain(note), STYLES["faint"]))


def _print_table(table: Table, console: Console) -> None:
    """Without the blanks that fill its lines: in a file or a pipe, a line may be as wide as the longest text."""
    with console.capture() as made:
        console.print(table)
    text = made.get()
    console.file.write(text if console.is_terminal else "\n".join(line.rstrip() for line in text.split("\n")))


def _print_facts(part: Facts, console: Console) -> None:
    if part.title:
        console.print(Text(plain(part.title), STYLES["strong"]))
    if part.text:
        console.print(plain_lines(part.text))
    if part.text and part.facts:
        console.print()
    if part.facts:
        console.print(fact_lines(part.facts, console.width))


def fact_lines(facts: Sequence[Fact], width: int, *, named: bool = False, least: int = 0) -> Text:
    """A line for each statement, wrapped below itself; ``named``: names have the colour too."""
    names = max(least, *(len(plain(fact.name)) for fact in facts))
    return Text("\n").join(
        Text.assemble(
            (plain(fact.name).ljust(names), STYLES[fact.tone] if named else ""),
            "  ",
            (wrapped(plain(fact.text), width, names + 2), STYLES[fact.tone]),
        )
        for fact in facts
    )


def _fitting(section: Section, width: int) -> list[int]:
    """The places of the columns that have room; if there is not enough for all, those without any value go first."""
    wanted = _easy(section, _widest(section, [_two_lines(heading.header) for heading in section.headings]))
    spare = [heading.spare for heading in section.headings]
    kept = fitting(spare, wanted, width)
    if len(kept) == len(spare):
        return kept
    told = [place for place in range(len(spare)) if _told(section, place)]
    return [told[at] for at in fitting([spare[place] for place in told], [wanted[place] for place in told], width)]


def _told(section: Section, place: int) -> bool:
    """Whether any row has a value in a column."""
    return not section.rows or any(row[place] not in (None, "") for row in section.rows)


def _of(section: Section, places: Sequence[int]) -> Section:
    """With these columns only."""
    return msgspec.structs.replace(
        section,
        headings=tuple(section.headings[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in section.rows),
        tones=tuple(tuple(row[place] for place in places) for row in section.tones),
    )


def _easy(section: Section, widest: Sequence[int]) -> list[int]:
    """The widths at which the columns are easy to read."""
    return [_least(heading, most, heading.words) for heading, most in zip(section.headings, widest, strict=True)]


def _at_least(section: Section, widest: Sequence[int]) -> list[int]:
    """The least widths of the columns; the first has names, which stay whole."""
    least = [_least(*each, WORDS) for each in zip(section.headings, widest, strict=True)]
    return [max(least[0], min(widest[0], _LONGEST_NAME)), *least[1:]]


def _least(heading: Heading, widest: int, words: int) -> int:
    """The width of a column in which numbers stay whole and texts wrap at ``words`` characters."""
    return widest if heading.number else min(widest, words)


def _widest(section: Section, heads: Sequence[str]) -> list[int]:
    """The width of each column's longest line."""
    shown = ([plain(heading.show(row[at])) for row in section.rows] for at, heading in enumerate(section.headings))
    return [max(map(cell_len, (*head.splitlines(), *cells))) for head, cells in zip(heads, shown, strict=True)]


def _table(section: Section, heads: Sequence[str], width: int) -> Table:
    """If long texts alone have to wrap, short ones do not."""
    widest = _widest(section, heads)
    easy = sum(_easy(section, widest)) + GAP * (len(widest) - 1) <= width
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for place, (head, heading, most) in enumerate(zip(heads, section.headings, widest, strict=True)):
        name = not place and most <= min(_LONGEST_NAME, width)
        whole = heading.number or name or (easy and most <= heading.words)
        table.add_column(head, justify="right" if heading.number else "left", no_wrap=whole, overflow="fold")
    for row, tones in zip(section.rows, section.toned, strict=True):
        cells = zip(section.headings, row, tones, strict=True)
        table.add_row(*(Text(plain(heading.show(cell)), STYLES[tone]) for heading, cell, tone in cells))
    return table


def _two_lines(header: str) -> str:
    """Put the unit below the title."""
    return header.replace(" (", "\n(")


def _narrow(head: str) -> str:
    """Break a heading between words, so that a column is hardly wider than what it holds."""
    return "\n".join(textwrap.fill(line, WORDS, break_long_words=False) for line in head.splitlines())
