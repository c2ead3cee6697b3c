"""The tables of Lambda's benchmark of NVIDIA's examples: a row for each precision and figure, a column for each task.

Pure. The original measures several GPUs in one job; here each has a tenant of its own, and the figure of a node is the
sum over them; what ran in one job has rows of its own. The original's watts and prices are those of a list, ours what
was measured and given. Relative figures are of throughput alone: in this suite a GPU with more memory has larger
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import msgspec

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.model.batch_sizes import BATCH_SIZE
from milabench_ng.model.profile import name_of
from milabench_ng.model.stats import mean
from milabench_ng.present.layouts.layout import SuiteLayout, chosen, gpu_name
from milabench_ng.present.render.cells import NOT_MEASURED, Cell, number, text
from milabench_ng.present.render.sections import Column, Section, section
from milabench_ng.report.report import Line, Report

SUITE = "lambda"
BATCH = f"option {BATCH_SIZE}"
TASKS = (
    *("ssd", "bert_base_squad", "bert_large_squad", "gnmt", "ncf", "resnet50", "tacotron2", "transformerxlbase"),
    *("transformerxllarge", "waveglow", "maskrcnn"),
)
"""The original's columns; further ones, such as of tests that read pictures through loaders, stand behind them."""
MODES = ("fp32", "tf32", "amp", "bf16", "half_master")
JOB = "_ddp"
"""How the name of a test ends that is one job over all GPUs."""
LOADER = "_loader"
"""How the task of a test ends that reads its pictures through loaders."""


def table(report: Report) -> Section:
    """The original's columns and those of further tests, with a row for each precision and figure."""
    lines = {(_precision(line), _task(line)): line for line in chosen(report, SUITE, _belongs)}
    rows = list(product(dict.fromkeys(precision for precision, _ in lines), _figures(report)))
    return section(SUITE, "NVIDIA's examples", rows, *_columns(report, lines))


def tables(report: Report) -> tuple[Section, ...]:
    """A table for each precision, with a row for each test."""
    lines = chosen(report, SUITE, _belongs)
    return tuple(
        section(
            precision,
            precision,
            [line for line in lines if _precision(line) == precision],
            Column[Line]("Test", value=lambda line: line.scored.test),
            *_figures(report),
        )
        for precision in dict.fromkeys(map(_precision, lines))
    )


def systems(reports: Mapping[str, Report]) -> Section:
    """A row for each system and precision: its GPUs, their measured watts, its price, the throughput of each task.

    Watts are those of all GPUs together, in the mean over the tasks. Raises InputError for a system without tasks.
    """
    rows = [row for name, report in reports.items() for row in _system(name, report)]
    return section(
        SUITE,
        "Systems",
        rows,
        Column[_System]("system", value=lambda row: row.name),
        Column[_System]("name_gpu", value=lambda row: gpu_name(row.report)),
        Column[_System]("num_gpu", value=lambda row: row.report.summary.devices),
        Column[_System]("watt", value=lambda row: row.watts, show=number, number=True),
        Column[_System]("price", value=lambda row: row.price, show=number, number=True),
        Column[_System]("precision", value=lambda row: row.precision),
        *(Column(task, value=_total_of(task), show=number, number=True) for task in TASKS),
    )


LAYOUT = SuiteLayout(table=table, tables=tables, holds=lambda _report, _form: ("--compare", "--price"))


class _System(msgspec.Struct, frozen=True, kw_only=True):
    """What a system reached in one precision."""

    name: str
    report: Report
    precision: str
    lines: dict[str, Line]
    """By task."""

    @property
    def price(self) -> float | None:
        """Of the node."""
        return self.report.price.per_node if self.report.price else None

    @property
    def watts(self) -> float | None:
        """None where a GPU does not tell."""
        told = [line.row.power_w for line in self.lines.values()]
        known = [each for each in told if each is not None]
        return mean(known) * self.report.summary.devices if len(known) == len(told) else None


def _system(name: str, report: Report) -> Iterable[_System]:
    lines = chosen(report, SUITE, lambda line: _task(line) in TASKS)
    for precision in dict.fromkeys(map(_precision, lines)):
        own = {_task(line): line for line in lines if _precision(line) == precision}
        yield _System(name=name, report=report, precision=precision, lines=own)


def _total_of(task: str) -> Callable[[_System], Cell]:
    return lambda row: row.lines[task].node_total if task in row.lines else None


def _columns(report: Report, lines: dict[tuple[str, str], Line]) -> Iterable[Column[tuple[str, Column[Line]]]]:
    gpu, count = gpu_name(report), report.summary.devices
    price = None if report.price is None else report.price.per_node
    yield Column("name_gpu", value=lambda _: gpu)
    yield Column("num_gpu", value=lambda _: count)
    yield Column("price", value=lambda _: price)
    yield Column("precision", value=lambda row: row[0])
    yield Column("figure", value=lambda row: row[1].title)
    for task in dict.fromkeys((*TASKS, *(task for _, task in lines))):
        yield Column(task, value=_cell(lines, task))


def _cell(lines: dict[tuple[str, str], Line], task: str) -> Callable[[tuple[str, Column[Line]]], Cell]:
    def cell(row: tuple[str, Column[Line]]) -> Cell:
        line = lines.get((row[0], task))
        return row[1].value(line) if line else None

    return cell


def _figures(report: Report) -> tuple[Column[Line], ...]:
    """Unit, batch, throughputs, and what they are relative to baselines, watts and price."""
    price = report.price
    found: dict[str, Callable[[Line], Cell]] = {
        "unit": lambda line: line.row.work.unit,
        "batch per GPU": lambda line: line.row.work.options.get(BATCH_SIZE),
        "throughput per GPU": lambda line: line.scored.perf,
        "throughput": lambda line: line.node_total,
        **{f"relative to {other.name}": _ratio_to(at, other) for at, other in enumerate(report.comparisons)},
        "watt per GPU": lambda line: line.row.power_w,
        "throughput per watt": lambda line: _quotient(line.scored.perf, line.row.power_w),
    }
    if price is not None:
        found["throughput per dollar"] = lambda line: _quotient(line.node_total, price.per_node)
    return tuple(Column(title, show=_shown, value=value) for title, value in found.items())


def _ratio_to(at: int, other: Comparison) -> Callable[[Line], Cell]:
    """The throughput of a GPU over that of baseline number ``at``, if nothing but the batch differs in the work."""
    differing = [each for each in other.differences if each.ratio != "counted" and each.what != BATCH]
    other_work = {test for each in differing for test in each.tests}

    def ratio(line: Line) -> Cell:
        compared = line.compared[at]
        if compared is None or line.scored.test in other_work:
            return None
        return _quotient(line.scored.perf, compared.perf_base)

    return ratio


def _belongs(line: Line) -> bool:
    return _task(line).removesuffix(LOADER) in TASKS


def _task(line: Line) -> str:
    """The original's name of a test: without suite and precision; empty for a test of another kind."""
    name = f"{name_of(line.scored.test).removesuffix(JOB)}_"
    mode = next((mode for mode in MODES if f"_{mode}_" in name), "")
    return name.replace(f"_{mode}_", "_").rstrip("_").replace("txl_", "transformerxl") if mode else ""


def _precision(line: Line) -> str:
    """What ran, of one job over all GPUs apart from that of GPUs which work alone."""
    job = " in one job" if line.scored.test.endswith(JOB) else ""
    return (" and ".join(line.row.work.precision) or NOT_MEASURED) + job


def _quotient(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _shown(cell: Cell) -> str:
    """A rate or a ratio with two decimals, or four digits below 100."""
    if not isinstance(cell, float):
        return text(cell)
    return f"{cell:.2f}" if cell >= 100 else f"{cell:.4g}"
