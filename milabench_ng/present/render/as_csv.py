"""The tables of a report as CSV: one header line with units, full precision, empty cells for what was not measured."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from milabench_ng.model.plain import plain
from milabench_ng.present.render.cells import NOT_MEASURED, Cell
from milabench_ng.present.render.columns import file_columns
from milabench_ng.present.render.sections import Section, section
from milabench_ng.present.render.tables import other_tables
from milabench_ng.records.output_files import written
from milabench_ng.report.report import Report

_FORMULA = re.compile(r"((?:^|;)\s*)(?=[=+\-@＝＋－＠])")
"""Where a line without tabs would begin a formula; full-width signs begin one, too."""
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
"""Characters to avoid in file names."""


def write(report: Report, stream: TextIO) -> None:
    write_section(section("tests", "", report.lines, *file_columns(report)), stream)


def write_all(
    report: Report, folder: Path, further: Sequence[Section] = (), *, force: bool = False
) -> tuple[Path, ...]:
    """Create ``folder`` and write each table of ``report``, and ``further``, to a file in it; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = folder / "tests.csv"
    with written(tests, "--tables", force=force) as stream:
        write(report, stream)
    files = [tests]
    for other in (*other_tables(report), *further):
        files.append(folder / f"{_UNFIT.sub('-', other.key)}.csv")
        with written(files[-1], "--tables", force=force) as stream:
            write_section(other, stream)
    return tuple(files)


def write_section(section: Section, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([plain(heading.name) for heading in section.headings])
    writer.writerows([_plain(cell) for cell in row] for row in section.rows)


def _plain(cell: Cell) -> Cell:
    """Remove terminal control characters, and escape text that a spreadsheet would take for a formula.

    Where the decimal comma is usual, spreadsheets begin a cell at every semicolon.
    """
    if not isinstance(cell, str):
        return "" if cell is None else cell
    return cell if cell == NOT_MEASURED else _FORMULA.sub(r"\1'", plain(cell))
