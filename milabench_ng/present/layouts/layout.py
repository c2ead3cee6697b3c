"""What the layouts of all suites share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from milabench_ng.analysis.summary.summary import Stat
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.sections import Form, Section
from milabench_ng.report.report import Line, Report


class SuiteLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How a suite lays out its results. Both raise InputError for a report without its tests."""

    table: Callable[[Report], Section]
    """All results in one table, for CSV."""
    tables: Callable[[Report], tuple[Section, ...]]
    """The tables of its Markdown."""
    holds: Callable[[Report, Form], Sequence[str]] = lambda _report, _form: ()
    """Which of the options --compare and --price its tables show something of, in this form."""


def chosen(report: Report, suite: str, belongs: Callable[[Line], bool]) -> tuple[Line, ...]:
    """The measured lines of ``report`` that belong to ``suite``. Raises InputError if there is none."""
    found = tuple(line for line in report.lines if line.row.train and line.row.train.mean and belongs(line))
    if not found:
        raise InputError(
            f"--layout {suite}: {report.source} has no measured test of that suite; run mnb jobs {suite} -o FOLDER"
        )
    return found


def gpu_name(report: Report) -> str:
    """The model of the devices, or the models, separated by commas."""
    models = ", ".join(dict.fromkeys(report.summary.models.values()))
    return models or report.summary.provenance.hardware.partition(" x ")[2] or report.summary.provenance.hardware


def mean_and_deviation(value: float, launches: Stat) -> str:
    """``"0.32 +- 0.01"``: a value made of the mean over ``launches``, with their deviation if they are several.

    Two decimals, or four for what is below 0.1.
    """
    digits = 2 if value >= 0.1 else 4
    deviation = f" +- {value * launches.std / launches.mean:.{digits}f}" if launches.n > 1 else ""
    return f"{value:.{digits}f}{deviation}"
