"""The output formats by name; pages and the layouts of suites are imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal, TextIO

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, printed_json
from milabench_ng.model.units import counted
from milabench_ng.present.layouts.layout import SuiteLayout
from milabench_ng.present.render import as_csv, as_json, as_markdown, as_table
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.render.device_tables import in_rows
from milabench_ng.present.render.last_screen import last_screen
from milabench_ng.present.render.sections import Document, Form
from milabench_ng.present.render.terminal import console_of, write_parts
from milabench_ng.records.output_files import written
from milabench_ng.report.report import Report
from milabench_ng.tender.tender import Tender

TYPE_CHECKING = False
if TYPE_CHECKING:  # numpy, which other reports do not need
    from milabench_ng.fleet.report import FleetReport

SuiteName = Literal["cv", "interference", "io", "lambda", "unet3d"]
"""Suites whose users know other columns."""
LAYOUTS: dict[SuiteName, str] = {
    "cv": "cv",
    "interference": "interference",
    "io": "data_loading",
    "lambda": "nvidia_examples",
    "unet3d": "unet3d",
}
"""Their modules in `present.layouts`."""


def tell(facts: Iterable[Fact]) -> None:
    """Write ``facts`` to the error output."""
    for fact in facts:
        print(f"mnb: {plain(fact.name)}: {plain(fact.text)}", file=sys.stderr)


def write_report(report: Report, form: Form, stream: TextIO, *, full: bool = False) -> None:
    """Write ``report`` to ``stream`` in the named format; ``full``: with all columns, though a terminal is narrow."""
    match form:
        case "table":
            further = _interference().tables(report) if full and report.neighbours else ()
            as_table.write(report, stream, further, full=full)
        case "csv":
            if report.show_gpus and report.gpus is not None:
                as_csv.write_section(in_rows(report.gpus), stream)
            else:
                as_csv.write(report, stream)
        case "markdown":
            as_markdown.write(report, stream)
        case "json":
            as_json.write(report, stream)


def write_last_screen(report: Report, stream: TextIO) -> None:
    """Write how a run ended, and what to do now; `write_report` has everything else."""
    console = console_of(stream)
    console.print(last_screen(report, console.width))


def write_layout(report: Report, suite: SuiteName, form: Form, stream: TextIO) -> None:
    """Write ``report`` to ``stream`` with the columns of ``suite``, and say which options these leave out.

    Raises InputError for JSON, or if the report has no test of the suite.
    """
    refuse_json(suite, form)
    layout: SuiteLayout = import_module(f"milabench_ng.present.layouts.{LAYOUTS[suite]}").LAYOUT
    match form:
        case "csv":
            as_csv.write_section(layout.table(report), stream)
        case "markdown":
            sections = layout.tables(report)
            as_markdown.write_alarms(report, stream)
            for section in sections:
                as_markdown.write_section(section, stream)
            as_markdown.write_isolation(report, stream)
        case "table":
            sections = layout.tables(report)
            as_table.write_alarms(report, stream)
            as_table.write_sections(sections, stream)
            as_table.write_isolation(report, stream)
    asked = [name for name, there in (("--compare", report.comparisons), ("--price", report.price)) if there]
    if left_out := [name for name in asked if name not in layout.holds(report, form)]:
        without = "it is in the report without --layout"
        tell([Fact(f"--layout {suite}", f"its columns hold nothing of {' and '.join(left_out)}; {without}")])


def refuse_json(suite: SuiteName | None, form: Form) -> None:
    """Raise InputError for the columns of a suite as JSON: before anything is read, where a command asks in time."""
    if suite is not None and form == "json":
        raise InputError(f"--layout {suite}: a suite's layout has no JSON form. Use CSV (--format csv)")


def _interference() -> ModuleType:
    """What neighbours cost, in any suite."""
    return import_module("milabench_ng.present.layouts.interference")


def write_tables(report: Report, folder: Path, *, force: bool = False) -> None:
    """Write every table of ``report`` as a CSV file into ``folder``."""
    try:
        study = import_module("milabench_ng.present.layouts.data_loading")
        further = (*_interference().file_tables(report), *study.file_tables(report))
        files = as_csv.write_all(report, folder, further, force=force)
    except OSError as error:
        raise InputError(f"--tables {folder}: {error.strerror}. Name another folder") from None
    _say_written(f"{counted(len(files), 'table')} in {folder}")


def write(document: Document, form: Form, stream: TextIO) -> None:
    """Write ``document`` to ``stream`` in the named format."""
    match form:
        case "table":
            write_parts(document.parts, stream)
        case "csv":
            as_csv.write_section(document.table, stream)
            tell(document.aside)
        case "markdown":
            as_markdown.write_document(document, stream)
        case "json":
            stream.write(printed_json(document.whole))


def write_page(made: Report | Tender | FleetReport, file: Path, *, force: bool = False) -> None:
    html = _html()
    with written(file, "--html", force=force) as stream:
        html.write(made, stream)
    _say_written(file)


def _html() -> ModuleType:
    try:
        return import_module("milabench_ng.present.html.as_html")
    except ModuleNotFoundError as error:
        raise InputError(
            f'--html: the package {error.name} is not installed. Run: pip install "milabench_ng[html]"'
        ) from None


@contextmanager
def open_output(path: Path | None, standard: TextIO, *, force: bool = False) -> Iterator[TextIO]:
    """A stream for the file ``path``, or ``standard`` if it is None; see `written`."""
    if path is None:
        yield standard
        return
    with written(path, "--output", force=force) as stream:
        yield stream
    _say_written(path)


def _say_written(what: Path | str) -> None:
    """Name what was written, on the error output; not a device or a pipe, which keeps nothing."""
    if isinstance(what, str) or what.is_file():
        print(f"mnb: wrote {plain(str(what))}", file=sys.stderr)
