"""The report as Markdown, for issues and wikis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from milabench_ng.report.report import Report
from milabench_ng.report.tables import Fact, columns, conclusion, header, isolation_fact


def write(report: Report, stream: TextIO) -> None:
    """Write ``report`` to ``stream``."""
    chosen = columns(report)
    stream.write(f"# mnb report: {_plain(report.summary.suite)}\n\n")
    _facts(header(report), stream)
    stream.write(_row(column.header for column in chosen))
    stream.write(_row("---:" if column.number else ":---" for column in chosen))
    for line in report.lines:
        stream.write(_row(column.show(column.value(line)) for column in chosen))
    stream.write("\n")
    if report.failed:
        stream.write(_row(("failed launch", "cause", "what is known")) + _row((":---", ":---", ":---")))
        for test, failed in report.failed:
            stream.write(_row((f"{test} J{failed.job_id}", failed.cause, failed.detail.partition("\n")[0])))
        stream.write("\n")
    _facts(conclusion(report), stream)
    if not report.isolated:
        stream.write(f"**isolation: {isolation_fact(report).text}**\n")


def _facts(facts: Iterable[Fact], stream: TextIO) -> None:
    for fact in facts:
        stream.write(f"- {fact.name}: {_plain(fact.text)}\n")
    stream.write("\n")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |\n"


def _plain(text: str) -> str:
    """Without what Markdown would read as a table or emphasis."""
    return text.replace("\n", " ").replace("|", "\\|").replace("_", "\\_").replace("*", "\\*")
