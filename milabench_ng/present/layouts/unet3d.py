"""The table of EMBL's 3D-UNet benchmark: a row for each precision, training and inference side by side. Pure.

Deviations are those between launches; the original's are between iterations and between blocks. How long iterations
took has columns of its own, if the launches' slices are there: iterations of one slice count as equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, zip_longest

import msgspec

from milabench_ng.present.layouts.layout import SuiteLayout, chosen, gpu_name, mean_and_deviation
from milabench_ng.present.render.sections import Column, Section, section
from milabench_ng.records.reading import ReadRecord
from milabench_ng.report.report import Line, Report

AXES = ("depth", "height", "width")
NAMES = {"fp32": "single", "amp": "mixed"}
"""The suite's words for what ran; it has none for tf32 and bf16."""
NOTHING = "-"


Steps = tuple[tuple[float, int], ...]
"""Seconds of a step, and how many steps took them."""


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    gpu: str
    cuda: str
    torch: str
    precision: str
    train: Line | None
    infer: Line | None
    train_steps: Steps
    infer_steps: Steps
    """Empty for a report on a summary."""


COLUMNS: tuple[Column[_Result], ...] = (
    Column("Gpu-Type", value=lambda row: row.gpu),
    Column("Cuda-Version", value=lambda row: row.cuda),
    Column("Pytorch-Version", value=lambda row: row.torch),
    Column("Precision", value=lambda row: row.precision),
    Column("Training [s/iter]", value=lambda row: _figure(row.train, "s/iter")),
    Column("Inference [MVox/s]", value=lambda row: _figure(row.infer, "MVox/s")),
    Column("Blocks_train", value=lambda row: _patch(row.train)),
    Column("Blocks_inf", value=lambda row: _block(row.infer)),
)
SPREAD = {"median": 0.5, "5 %": 0.05, "95 %": 0.95}
"""Of the iterations of all launches, in their windows."""


def _spread(what: str, of: Callable[[_Result], Steps]) -> tuple[Column[_Result], ...]:
    def column(title: str, part: float) -> Column[_Result]:
        return Column(f"{what} {title} [s]", value=lambda row: _quantile(of(row), part))

    return tuple(column(title, part) for title, part in SPREAD.items())


ITERATIONS = (*_spread("Iteration", lambda row: row.train_steps), *_spread("Block", lambda row: row.infer_steps))
NET: Column[_Result] = Column("Inference net of the halo [MVox/s]", value=lambda row: _figure(row.infer, "MVox/s net"))


def table(report: Report) -> Section:
    """The original's columns, and behind them what it lacks."""
    return section("unet3d", "3D-UNet", _results(report), *_columns(report))


def tables(report: Report) -> tuple[Section, ...]:
    """The same, a table for each precision."""
    kept = [column for column in _columns(report) if column.title != "Precision"]
    return tuple(
        section(precision, precision, list(rows), *kept)
        for precision, rows in groupby(_results(report), lambda row: row.precision)
    )


LAYOUT = SuiteLayout(table=table, tables=tables)


def _results(report: Report) -> list[_Result]:
    """Training and inference of equal precision in one row; a second test of the same kind gets a row of its own."""
    lines = chosen(report, "unet3d", lambda line: _trains(line) or _infers(line))
    software = report.summary.provenance.software
    found = []
    for precision in dict.fromkeys(_precision(line) for line in lines):
        same = [line for line in lines if _precision(line) == precision]
        for train, infer in zip_longest(filter(_trains, same), filter(_infers, same)):
            found.append(
                _Result(
                    gpu=gpu_name(report),
                    cuda=software.get("cuda", NOTHING) if set(report.summary.models.values()) != {"CPU"} else NOTHING,
                    torch=software.get("torch", NOTHING),
                    precision=precision,
                    train=train,
                    infer=infer,
                    train_steps=_steps(report, train),
                    infer_steps=_steps(report, infer),
                )
            )
    return found


def _columns(report: Report) -> tuple[Column[_Result], ...]:
    """Those of iterations only if there are records to take them from."""
    return (*COLUMNS, NET, *(ITERATIONS if report.folder is not None else ()))


def _steps(report: Report, line: Line | None) -> Steps:
    """How long the steps of a test took in the windows of its launches."""
    if line is None or report.folder is None:
        return ()
    records = (each.record for each in report.folder.records if isinstance(each, ReadRecord))
    own = (each.mnb for each in records if each.mnb.label == line.scored.test)
    return tuple(
        (row.length_s / row.steps, row.steps)
        for mnb in own
        if mnb.window is not None
        for rank in mnb.ranks
        for row in rank.slices
        if row.steps and mnb.window.holds(row)
    )


def _quantile(steps: Steps, part: float) -> str:
    """The least time that ``part`` of the steps do not exceed."""
    left = part * sum(count for _, count in steps)
    for seconds, count in sorted(steps):
        left -= count
        if left <= 0:
            return f"{seconds:.4f}"
    return NOTHING


def _trains(line: Line) -> bool:
    return line.row.work.unit == "voxels" and line.row.work.options.keys() >= {*AXES, "batch_size"}


def _infers(line: Line) -> bool:
    return line.row.work.unit == "voxels" and line.row.work.options.keys() >= {f"block_{axis}" for axis in AXES}


def _precision(line: Line) -> str:
    return " and ".join(NAMES.get(each, each) for each in line.row.work.precision) or NOTHING


def _figure(line: Line | None, unit: str) -> str:
    """The mean over the launches in ``unit``, and their deviation."""
    value = line.in_unit(unit) if line else None
    if line is None or value is None or line.row.train is None:
        return NOTHING
    return mean_and_deviation(value, line.row.train)


def _patch(line: Line | None) -> str:
    """The sides of a patch."""
    return _product(line.row.work.options[axis] for axis in AXES) if line else NOTHING


def _block(line: Line | None) -> str:
    """The sides of a block with its halo on either side: what the network gets."""
    if line is None:
        return NOTHING
    options = line.row.work.options
    return _product(_whole(options[f"block_{axis}"]) + 2 * _whole(options.get(f"halo_{axis}")) for axis in AXES)


def _product(sides: Iterable[object]) -> str:
    return " x ".join(map(str, sides))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
