"""The report for a terminal; plain text where there is none (``NO_COLOR`` is respected)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milabench_ng.report.report import Report
from milabench_ng.report.tables import Column, Fact, Tone, columns, conclusion, header, isolation_fact

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "good": "green",
    "fair": "yellow",
    "poor": "yellow",
    "bad": "red bold",
    "faint": "dim",
}
_FAILURES_SHOWN = 20
_UNLIMITED = 2000
"""Columns: rich would cut numbers short to fit a terminal."""


def write(report: Report, stream: TextIO) -> None:
    """Write ``report`` to ``stream``. No digit is ever cut off: on a narrow terminal long lines go on below."""
    console = Console(file=stream, width=_UNLIMITED, highlight=False, markup=False, emoji=False)
    console.print(_facts(header(report)), _tests(report), sep="\n\n")
    if report.failed or report.summary.problems:
        console.print("", _failures(report), sep="\n")
    console.print("", _facts(conclusion(report)), sep="\n")
    if not report.isolated:
        console.print(_facts([isolation_fact(report)]))


def _facts(facts: Sequence[Fact]) -> Text:
    width = max(len(fact.name) for fact in facts)
    lines = [Text.assemble(fact.name.ljust(width), "  ", (fact.text, _STYLES[fact.tone])) for fact in facts]
    return Text("\n").join(lines)


def _tests(report: Report) -> Table:
    chosen = columns(report)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for column in chosen:
        table.add_column(column.header.replace(" (", "\n("), justify="right" if column.number else "left", no_wrap=True)
    prefix = f"{report.summary.suite}."
    for line in report.lines:
        light = report.score is not None and not line.scored.weight
        table.add_row(
            *(_cell(column, column.value(line), prefix) for column in chosen), style=_STYLES["faint"] if light else ""
        )
    return table


def _cell(column: Column, value: str | int | float | None, prefix: str) -> Text:
    shown = column.show(value)
    return Text(shown.removeprefix(prefix) if column.key == "test" else shown, _STYLES[column.tone(value)])


def _failures(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for title in ("failed launch", "cause", "what is known"):
        table.add_column(title, no_wrap=True)
    rows = [(f"{test} J{failed.job_id}", failed.cause, failed.detail) for test, failed in report.failed]
    rows += [(problem.file, "unreadable", problem.reason) for problem in report.summary.problems]
    for name, cause, detail in rows[:_FAILURES_SHOWN]:
        table.add_row(Text(name), Text(cause, _STYLES["bad"]), Text(detail.strip().partition("\n")[0][:120]))
    if len(rows) > _FAILURES_SHOWN:
        table.add_row(f"... and {len(rows) - _FAILURES_SHOWN} more", "", "(all of them: --format json)")
    return table
