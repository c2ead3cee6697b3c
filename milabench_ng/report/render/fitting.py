"""Chooses what of a table fits on a terminal. Pure: widths are in columns of the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

UNLIMITED = 2000
"""The width of what is no terminal: a file, a pipe."""
GAP = 2
"""Between two columns."""
WORDS = 14
"""To how many characters a text may be wrapped."""
_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=[%$])")
TOGETHER = "\N{NO-BREAK SPACE}"
"""A space at which no line ends; `wrapped` makes it an ordinary one."""
_OPTIONAL = (
    *("verdict", "unit", "+-95 %", "std", "GPU", "data wait", "95 % interval", "devices", "runs", "perf_base"),
    *("energy", "power", "perf_adj", "weight", "peak", "node total", "perf_base_adj", "perf_ratio_adj"),
)
"""Most important first; what is not here always stays."""


def fitting(titles: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that fit, given their titles and widths: all that always stay, then by importance."""
    kept = [place for place, title in enumerate(titles) if not any(_is(title, wanted) for wanted in _OPTIONAL)]
    for wanted in _OPTIONAL:
        more = sorted(kept + [place for place, title in enumerate(titles) if _is(title, wanted) and place not in kept])
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


def _is(title: str, wanted: str) -> bool:
    """Whether it is the column of that name, perhaps for one of several baselines."""
    return title == wanted or title.startswith(f"{wanted} ")


def wrapped(text: str, width: int, indent: int) -> str:
    """The text in lines of at most ``width`` columns, all after the first indented; a long word stays whole."""
    if width >= UNLIMITED:
        return text
    kept = _NUMBER_AND_UNIT.sub(TOGETHER, text)
    lines = textwrap.wrap(kept, max(width - indent, 20), break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines).replace(TOGETHER, " ")
