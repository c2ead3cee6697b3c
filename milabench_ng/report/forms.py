"""The forms of what is printed, by name: modules with ``write`` (a report) and ``write_tender``, imported when used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Literal, TextIO

from milabench_ng.errors import InputError
from milabench_ng.report.report import Report
from milabench_ng.report.tender import Tender

Form = Literal["table", "json", "csv", "markdown"]


def write_report(report: Report, form: Form, stream: TextIO) -> None:
    """Write ``report`` to ``stream`` in the named form."""
    import_module(f"milabench_ng.report.as_{form}").write(report, stream)


def write_tables(report: Report, folder: Path) -> None:
    """Write every table of ``report`` as a CSV file into ``folder``."""
    from milabench_ng.report.as_csv import write_all

    try:
        write_all(report, folder)
    except OSError as error:
        raise InputError(f"--tables {folder}: {error.strerror}") from None


def write_tender(tender: Tender, form: Form, stream: TextIO) -> None:
    """Write ``tender`` to ``stream`` in the named form."""
    import_module(f"milabench_ng.report.as_{form}").write_tender(tender, stream)


@contextmanager
def open_output(path: Path | None, standard: TextIO) -> Iterator[TextIO]:
    """The file ``path`` for writing, or ``standard`` where there is none."""
    if path is None:
        yield standard
        return
    try:
        stream = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {path}: {error.strerror}") from None
    with stream:
        yield stream
