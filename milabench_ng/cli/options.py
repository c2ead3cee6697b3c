"""Options that mean the same in several commands, declared once: what they take, what they are called, what they do."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter, Token

from milabench_ng.cli.named_files import WeightsPath, Writes
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, quoted, short
from milabench_ng.model.shipped import names
from milabench_ng.model.units import parse_share
from milabench_ng.present.render.sections import Form


def _whole(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{tokens[0].keyword}: expected a whole number, got {short(text)!r}. Try {tokens[0].keyword} 5"
        ) from None


def _count(kind: type, tokens: Sequence[Token]) -> int:
    value = _whole(kind, tokens)
    if value < 1:
        raise InputError(f"{tokens[0].keyword}: expected at least 1, got {value}")
    return value


def _money(_: type, tokens: Sequence[Token]) -> float:
    return amount(tokens[0].value, str(tokens[0].keyword))


def amount(text: str, option: str) -> float:
    """An amount of money that ``option`` was given."""
    if _AMBIGUOUS.fullmatch(text):
        raise InputError(f"{option}: {text} is ambiguous. Write {text.replace('.', '')} or {text[:-1]}")
    value = _number(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text)
    if not 0 < value < math.inf:
        raise InputError(f"{option}: expected an amount above 0, got {short(text)!r}. Try 300000, 300,000 or 15000.50")
    return value


def _number(text: str) -> float:
    """NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _above_zero(example: str) -> Parameter:
    def read(_: type, tokens: Sequence[Token]) -> float:
        text, option = tokens[0].value, tokens[0].keyword
        value = _number(text)
        if not 0 < value < math.inf:
            raise InputError(f"{option}: expected a number above 0, got {short(text)!r}. Try {option} {example}")
        return value

    return Parameter(converter=read)


def _fraction(_: type, tokens: Sequence[Token]) -> float:
    text, option = tokens[0].value, str(tokens[0].keyword)
    value = parse_share(text, option)
    if not 0 < value <= 1:
        bare = 2 <= value <= 100 and "%" not in text
        meant = f"{text}% is {value / 100:g}" if bare else "Try 97%, 2.5% or 0.025"
        raise InputError(f"{option}: expected a share above 0% and up to 100%, got {short(text)!r}. {meant}")
    return value


_AMBIGUOUS = re.compile(r"\d{1,3}\.\d{3}")
"""Thousands in one country, and thousandths in another."""
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
Whole = Annotated[int, Parameter(converter=_whole)]
"""A whole number: 2.7 is an error and not 3."""
Count = Annotated[int, Parameter(converter=_count)]
"""A whole number of at least 1."""
Money = Annotated[float, Parameter(converter=_money)]
"""An amount, with or without separators of thousands."""
PerKwh = Annotated[float, _above_zero("0.20")]
"""A price, but of so little that 0.250 can only be a quarter."""
Positive = Annotated[float, _above_zero("60")]
"""A number above 0."""
Fraction = Annotated[float, Parameter(converter=_fraction)]
"""``0.97`` or ``97%``: above 0, at most 1."""
Switch = Annotated[bool, Parameter(negative=())]
"""A flag that can be set and not unset."""
Several = Annotated[tuple[str, ...], Parameter(negative=())]
"""May be repeated."""

REPEATS = Parameter(group=Group.create_ordered("Repeats"))
ORDER = Parameter(group=Group.create_ordered("Order"))
FAILURES = Parameter(group=Group.create_ordered("Failures"))
RESUMING = Parameter(group=Group.create_ordered("Resuming"))
MEASURING = Parameter(group=Group.create_ordered("Measuring"))
SHARES = Parameter(group=Group.create_ordered("Shares"))
DATA = Parameter(group=Group.create_ordered("Data"))
RULES = Parameter(group=Group.create_ordered("Rules"))
RATIOS = Parameter(group=Group.create_ordered("Ratios"))
FILES = Parameter(group=Group.create_ordered("Files"))
"""The groups of options that few need, which ``--help`` only names. Most people need what is in none."""

Output = Annotated[
    Path | None,
    Writes(),
    Parameter(name=["--output", "-o"], help="Write to this file instead of the terminal."),
]
Force = Annotated[bool, Parameter(negative=(), help="Overwrite existing files. Evidence is never overwritten.")]
Html = Annotated[Path | None, Writes(), Parameter(help="Also write an HTML page with charts. It opens offline.")]
FormOption = Annotated[Form, Parameter(name="--format", help="Output format: table, json, csv or markdown.")]
FileForm = Annotated[
    Form | None,
    Parameter(
        name="--format",
        help="Output format: table, json, csv or markdown. Default: what the ending of --output says, or table.",
    ),
]
WeightsOption = Annotated[
    WeightsPath,
    Parameter(help="A JSON file of weights by test. Default: the shipped file of the suite."),
]

ProfileOption = Annotated[
    Path,
    Parameter(
        help="A JSON file of tests, or the name of a shipped profile. Profiles of milabench 2020 are "
        f"converted. Shipped: {', '.join(names('profiles'))}."
    ),
]

GpusOption = Annotated[
    str,
    Parameter(
        help="GPUs to use, by index or UUID, separated by commas. Default: CUDA_VISIBLE_DEVICES (empty = no "
        "GPU), or all GPUs if unset."
    ),
]
RamTotal = Annotated[
    str | None,
    Parameter(
        help="RAM to divide among the tenants, such as 512GiB. For virtual machines whose MemTotal grows with use."
    ),
]
CgroupParent = Annotated[str | None, Parameter(help="Create cgroups below this one instead of the root.")]
DataRoot = Annotated[
    Path | None,
    Parameter(
        name=["--dataroot", "-d"],
        help="Folder of the datasets. Default: $MNB_DATAROOT, or ~/.cache/milabench_ng if unset.",
    ),
]


def form_for(form: Form | None, output: Path | None) -> Form:
    """The format that was asked for, or the one that the name of the file ends in. Raises InputError for a page."""
    ending = output.suffix.lower() if output else ""
    if ending in (".html", ".htm") and form is None:
        raise InputError(
            f"--output {plain(output)}: it writes no pages. mnb report and mnb bids do: --html {quoted(output)}"
        )
    return form or _BY_ENDING.get(ending, "table")


_BY_ENDING: dict[str, Form] = {".csv": "csv", ".json": "json", ".md": "markdown"}
