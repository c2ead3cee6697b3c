"""Formatting of table cells for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.statistics.effects import DIFFERS
from milabench_ng.analysis.summary.summary import Summary, name_of_row
from milabench_ng.model.plain import names_of
from milabench_ng.model.units import counted, format_bytes, four_digits

Cell = str | int | float | None
Tone = Literal["plain", "good", "fair", "poor", "bad", "strong", "faint"]

NOT_MEASURED = "-"
_REASON = 240
"""Characters."""


class Fact(msgspec.Struct, frozen=True):
    """A named statement."""

    name: str
    text: str
    tone: Tone = "plain"


NAMED = 4
"""How many tests are named in a line; the rest are counted."""


def rows_told(labels: Iterable[str]) -> str:
    """The tests of these rows without their suites: the first `NAMED`, and how many there are more."""
    return names_of([name_of_row(label) for label in labels], NAMED)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question of a first screen; its first part is what one looks for."""

    name: str
    parts: tuple[str, ...]
    tone: Tone = "plain"

    @property
    def fact(self) -> Fact:
        """The answer as one statement."""
        return Fact(self.name, "   ".join(self.parts), self.tone)


def figure(value: float) -> str:
    """A readable number: two decimals, none for large numbers, more for small ones."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"


def place_told(at: float, over: str) -> str:
    """A place of a sweep over something, such as bytes, for people."""
    return format_bytes(at).replace(".0 ", " ") if over == "bytes" else f"{at:,g}"


def money(amount: float) -> str:
    """An amount, without cents from a thousand on."""
    return f"{amount:,.0f}" if amount >= 1000 or amount == int(amount) else f"{amount:,.2f}"


def narrowed_by(repeats: int | None) -> str:
    """How many repeats an interval of ±1% would need; None for over 1000."""
    return f"a ±1% interval would need {'over 1000' if repeats is None else f'about {repeats}'} repeats"


def brief(other: Comparison) -> str:
    """A baseline's name without folders and suffix."""
    return other.label or other.name.rstrip("/").rpartition("/")[2].removesuffix(".json") or other.name


def covered(other: Comparison) -> str:
    """The tests that a ratio covers, and what these weigh."""
    weight = "" if other.tests == other.of else f", {other.weight_pct:.0f}% of the weight"
    return f"{other.tests} of {counted(other.of, 'test')}{weight}"


def device_word(summary: Summary) -> str:
    """What a tenant works on: a GPU, or a device where nobody knows or processors do the work."""
    models = set(summary.models.values())
    return "GPU" if models and "CPU" not in models else "device"


def in_form(form: str) -> Callable[[Cell], str]:
    """Writes numbers as `format` does in this ``form``, and words in their place as they are."""
    return lambda cell: format(cell, form) if isinstance(cell, int | float) else text(cell)


def toned(tones: Mapping[Cell, Tone], otherwise: Tone = "plain") -> Callable[[Cell], Tone]:
    """Gives cells the tones of their values."""
    return lambda cell: tones.get(cell, otherwise)


def shaded(*steps: tuple[float, Tone]) -> Callable[[Cell], Tone]:
    """Gives a number the tone of the first bound that it reaches; below all of them it is bad."""
    return lambda cell: (
        next((tone for bound, tone in steps if cell >= bound), "bad") if isinstance(cell, int | float) else "plain"
    )


def text(cell: Cell) -> str:
    """The value unchanged."""
    return NOT_MEASURED if cell is None else str(cell)


def number(cell: Cell) -> str:
    """See `figure`."""
    return figure(cell) if isinstance(cell, int | float) else NOT_MEASURED


def points(cell: Cell) -> str:
    """See `four_digits`."""
    return four_digits(cell) if isinstance(cell, int | float) else NOT_MEASURED


one_decimal = in_form("z.1f")
"""Without a minus sign before 0."""
whole = in_form(",.0f")
exact_ratio = in_form(".3f")
"""Three decimals, as ratios to baselines have on the first screen."""
ratio_tone = shaded((1.1, "strong"), (0.9, "good"), (0.75, "poor"))
"""The colours of 2020."""
tone_of_verdict = toned(
    {
        "better": "good",
        "worse": "bad",
        "inconclusive": "fair",
        "estimated": "fair",
        DIFFERS: "fair",
        "not judged": "faint",
        "not counted": "faint",
    }
)


def one_line(cell: Cell) -> str:
    """A text in one line."""
    return " ".join(text(cell).split())


def reason_text(cell: Cell) -> str:
    """What a node said in one line, of which a long one has lost its middle: who said it comes first, why last."""
    made = one_line(cell)
    if len(made) <= _REASON:
        return made
    return f"{made[: _REASON // 2].rpartition(' ')[0]} [...] {made[-_REASON // 2 :].partition(' ')[2]}"


def ratio_text(cell: Cell) -> str:
    """Two decimals, or two digits for a small ratio."""
    if not isinstance(cell, int | float):
        return NOT_MEASURED
    return f"{cell:.2f}" if cell >= 0.1 or cell == 0 else f"{cell:.2g}"


def half_width(cell: Cell) -> str:
    """Half an interval in percent: beyond 100 it only tells that nothing is known."""
    return "over 100" if isinstance(cell, int | float) and cell > 100 else one_decimal(cell)


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
