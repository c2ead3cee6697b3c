"""Chooses what of a table fits on a terminal. Pure: widths are in columns of the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

UNLIMITED = 2000
"""The width of what is no terminal: a file, a pipe."""
GAP = 2
"""Between two columns."""
WORDS = 14
"""To how many characters a text may be wrapped."""
TOGETHER = "\N{NO-BREAK SPACE}"
"""A space at which no line ends; `wrapped` makes it an ordinary one."""


def fitting(spare: Sequence[int], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that fit: all that always stay (0), then the others by their number."""
    kept = [place for place, number in enumerate(spare) if not number]
    for wanted in sorted({*spare} - {0}):
        more = sorted([*kept, *(place for place, number in enumerate(spare) if number == wanted)])
        if sum(widths[place] + GAP for place in more) - GAP <= width:
            kept = more
    return kept


def blocks(widths: Sequence[int], width: int) -> list[list[int]]:
    """The places of all columns in blocks that fit; the first column, which names the rows, begins every block."""
    made: list[list[int]] = [[0]]
    for place in range(1, len(widths)):
        if len(made[-1]) > 1 and sum(widths[at] + GAP for at in (*made[-1], place)) - GAP > width:
            made.append([0])
        made[-1].append(place)
    return made


def wrapped(text: str, width: int, indent: int) -> str:
    """The text in lines of at most ``width`` columns, all after the first indented; a long word stays whole."""
    if width >= UNLIMITED:
        return text
    lines = textwrap.wrap(text, max(width - indent, 20), break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines).replace(TOGETHER, " ")
