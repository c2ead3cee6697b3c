"""The forms of a report by name. Each is a module with ``write(report, stream)``; it is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Literal, TextIO

from milabench_ng.errors import InputError
from milabench_ng.report.report import Report

Form = Literal["table", "json", "csv", "markdown"]


def write_report(report: Report, form: Form, stream: TextIO) -> None:
    """Write ``report`` to ``stream`` in the named form."""
    import_module(f"milabench_ng.report.as_{form}").write(report, stream)


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
