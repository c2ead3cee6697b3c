"""The table of TensorPix's benchmark of vision models: a row for each test, in the original's columns. Pure.

The original multiplies images by the GPUs of one job; here each GPU has a tenant of its own, and the rates are the sums
over them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from milabench_ng.present.layouts.layout import SuiteLayout, chosen, gpu_name
from milabench_ng.present.render.cells import Cell
from milabench_ng.present.render.sections import Column, Section, section
from milabench_ng.report.report import Line, Report

NOTHING = "-"
OPTIONS = {"arch", "batch_size", "width", "height", "source"}
"""Those of the family's workloads; others lack at least one."""


def table(report: Report) -> Section:
    """The original's columns, training and inference below each other."""
    return section("cv", "Vision models", _lines(report), *_columns(report))


def tables(report: Report) -> tuple[Section, ...]:
    """A table for training and one for inference."""
    kinds = (("training", lambda line: not _infers(line)), ("inference", _infers))
    found = ((title, [line for line in _lines(report) if belongs(line)]) for title, belongs in kinds)
    return tuple(section(title, title, lines, *_columns(report)) for title, lines in found if lines)


LAYOUT = SuiteLayout(table=table, tables=tables)


def _columns(report: Report) -> Iterable[Column[Line]]:
    gpu = gpu_name(report)
    cudnn = report.summary.provenance.software.get("cudnn", NOTHING)
    return (
        Column("Datetime", value=_date),
        Column("GPU", value=lambda _: gpu),
        Column("cuDNN version", value=lambda _: cudnn),
        Column("N GPUs", value=lambda line: line.row.devices),
        Column("Data Loader workers", value=_workers),
        Column("Model", value=lambda line: line.row.work.options["arch"]),
        Column("Precision", value=lambda line: " and ".join(line.row.work.precision) or NOTHING),
        Column("Minibatch", value=lambda line: line.row.work.options["batch_size"]),
        Column("Input width [px]", value=lambda line: line.row.work.options["width"]),
        Column("Input height [px]", value=lambda line: line.row.work.options["height"]),
        Column("Warmup steps", value=lambda line: line.row.steps.before if line.row.steps else NOTHING),
        Column("Benchmark steps", value=lambda line: line.row.steps.measured if line.row.steps else NOTHING),
        Column("MPx/s", value=lambda line: _derived(line, "MPx/s")),
        Column("images/s", value=lambda line: _rounded(line.node_total)),
        Column("batches/s", value=lambda line: _derived(line, "batches/s")),
        Column("Test", value=lambda line: line.scored.test),
        Column("Failed launches", value=lambda line: line.scored.fail),
    )


def _lines(report: Report) -> tuple[Line, ...]:
    return chosen(report, "cv", lambda line: line.row.work.unit == "images" and line.row.work.options.keys() >= OPTIONS)


def _infers(line: Line) -> bool:
    """Inference alone has no learning rate."""
    return "learning_rate" not in line.row.work.options


def _date(line: Line) -> str:
    """When the first launch started, in UTC."""
    started = line.row.started_utc
    return started.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if started else NOTHING


def _workers(line: Line) -> Cell:
    """Loader processes; none feed a batch that stays on the device."""
    return 0 if line.row.work.options["source"] == "resident" else line.row.work.options.get("workers", NOTHING)


def _derived(line: Line, unit: str) -> Cell:
    """The rate of all devices in ``unit``."""
    value = line.in_unit(unit)
    return _rounded(None if value is None else value * line.row.devices)


def _rounded(value: float | None) -> Cell:
    return NOTHING if value is None else f"{value:.2f}"
