"""Tables and headings on standard output: coloured in a terminal, plain elsewhere and with NO_COLOR."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.plain import plain

_UNLIMITED = 2000
"""In columns; otherwise rich cuts text short to fit a terminal."""


def standard_output() -> Console:
    """Prints text as it is: no markup, no cut lines."""
    return Console(file=sys.stdout, width=_UNLIMITED, highlight=False, markup=False, emoji=False)


def heading(text: str) -> Text:
    """The title of a section."""
    return Text(plain(text), "bold")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """A table of ``rows``; the columns named in ``right`` hold numbers."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for header in headers:
        made.add_column(header, justify="right" if header in right else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, str]]) -> Text:
    """Aligned lines, each with a name and a text."""
    known = list(pairs)
    width = max((len(name) for name, _ in known), default=0)
    return Text("\n").join(Text(f"{name.ljust(width)}  {plain(text)}".rstrip()) for name, text in known)
