"""Tables and headings on standard output: coloured in a terminal, plain elsewhere and with NO_COLOR.

On a terminal they are as wide as it is: texts wrap, columns that matter least are left out, and what is still too wide
stands in several tables below each other. Elsewhere nothing is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from milabench_ng.plain import plain
from milabench_ng.report.render.fitting import GAP, UNLIMITED, WORDS, blocks, wrapped
from milabench_ng.report.render.output_width import output_width

NOTHING = "-"
"""A cell without a value."""
_EASY = 36
"""To how many characters a text is wrapped before a column that can be spared gives way."""


def standard_output() -> Console:
    """Prints text as it is: no markup, no cut lines."""
    return Console(file=sys.stdout, width=_width(), highlight=False, markup=False, emoji=False)


def heading(text: str) -> Text:
    """The title of a section."""
    return Text(plain(text), "bold")


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = (), spare: Sequence[str] = ()
) -> Group:
    """A table of ``rows``; the columns named in ``right`` hold numbers.

    Columns in which no row has anything but ``NOTHING`` are left out. ``spare``: those that a narrow terminal can do
    without, the least important first; a line below names them.
    """
    texts = [[plain(cell) for cell in row] for row in rows]
    least, wanted = (
        [_room(place, header, texts, UNLIMITED if header in right else words) for place, header in enumerate(headers)]
        for words in (WORDS, _EASY)
    )
    kept = [place for place in range(len(headers)) if not texts or any(row[place] != NOTHING for row in texts)]
    gone: list[str] = []
    for name in (name for name in spare if headers.index(name) in kept):
        if sum(wanted[place] + GAP for place in kept) - GAP <= _width():
            break
        kept.remove(headers.index(name))
        gone.append(name)
    parts = blocks([least[place] for place in kept], _width())
    tables = [
        _table([headers[kept[at]] for at in part], [[row[kept[at]] for at in part] for row in texts], right)
        for part in parts
    ]
    told = f"{', '.join(reversed(gone))}: only in a wider terminal or in a file" if gone else ""
    return Group(*tables, *([Text(told, "dim")] if told else []))


def facts(pairs: Iterable[tuple[str, str]]) -> Text:
    """Aligned lines, each with a name and a text that wraps below itself."""
    known = list(pairs)
    names = max((len(name) for name, _ in known), default=0)
    lines = (f"{name.ljust(names)}  {wrapped(plain(text), _width(), names + 2)}".rstrip() for name, text in known)
    return Text("\n").join(map(Text, lines))


def _width() -> int:
    return output_width(sys.stdout)


def _room(place: int, header: str, rows: Sequence[Sequence[str]], most: int) -> int:
    """The width of a column whose texts wrap at ``most`` characters."""
    return max(len(header), min(max((len(row[place]) for row in rows), default=0), most))


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> Table:
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for header in headers:
        number = header in right
        made.add_column(header, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made
