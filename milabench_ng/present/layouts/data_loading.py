"""The table of the data-loading study: a row for each strategy, limit and repetition, in the original's columns. Pure.

Seconds are those of an epoch of the study, 740 images, at the rate of one GPU; several GPUs of a node work side by side
and count as their mean. The original measures whole epochs, and with them the refill of the pipeline at their start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.stats import mean, sample_std
from milabench_ng.model.units import format_limit
from milabench_ng.present.layouts.layout import SuiteLayout, chosen
from milabench_ng.present.render.cells import Cell
from milabench_ng.present.render.sections import Column, Section, section
from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.record import Record
from milabench_ng.records.window import SliceRow
from milabench_ng.report.report import Line, Report

SUITE = "io"
STRATEGIES = ("original", "blosc", "fp16", "gpu_aug", "ring_buffer")
EPOCH = 740
"""Images."""
WARM_UP = 2
"""Epochs at the start that the study leaves out."""
UNLIMITED = "unlimited"
NOTHING = "-"


class LoadingResult(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy under a limit: what was measured in each repetition."""

    strategy: str
    limit: str
    """In words."""
    repetitions: tuple[str, ...]
    epochs_s: tuple[float, ...]
    loads: tuple[float | None, ...]
    """Mean utilisation of the GPU, 0 to 1; None if unknown."""
    test: str

    @property
    def name(self) -> str:
        """As the study writes it: each strategy adds one thing to those before."""
        plain = self.strategy.replace("_", "-")
        return plain if self.strategy == STRATEGIES[0] else f"+{plain}"

    @property
    def order(self) -> int:
        """Its place among the strategies."""
        return STRATEGIES.index(self.strategy)

    @property
    def limited(self) -> bool:
        """Whether something held a limit."""
        return not self.limit.startswith(UNLIMITED)

    @property
    def epoch_s(self) -> float:
        """The mean over the repetitions."""
        return mean(self.epochs_s)

    @property
    def deviation_s(self) -> float | None:
        """Sample standard deviation over the repetitions; None for one."""
        return sample_std(self.epochs_s) if len(self.epochs_s) > 1 else None

    @property
    def load(self) -> float | None:
        """The mean over the repetitions; None if one is unknown."""
        known = [load for load in self.loads if load is not None]
        return mean(known) if known and len(known) == len(self.loads) else None


def loading_results(report: Report) -> tuple[LoadingResult, ...]:
    """The measured tests of the study, in its order; those of one limit after the other. Empty if there is none."""
    found = [_result(line) for line in report.lines if _belongs(line) and line.row.repeats]
    limits = list(dict.fromkeys(each.limit for each in sorted(found, key=lambda each: each.limited)))
    return tuple(sorted(found, key=lambda each: (limits.index(each.limit), each.order)))


def table(report: Report) -> Section:
    """The original's columns."""
    rows = [(each, at) for each in _required(report) for at in range(len(each.epochs_s))]
    return section(SUITE, "Data loading", rows, *_COLUMNS)


def tables(report: Report) -> tuple[Section, ...]:
    """A table for each limit, with a row for each strategy."""
    results = _required(report)
    return tuple(_of_limit(limit, results) for limit in dict.fromkeys(each.limit for each in results))


def file_tables(report: Report) -> tuple[Section, ...]:
    """The seconds of every whole epoch of every launch, as a file; none without records of the study."""
    tests = {line.scored.test for line in report.lines if _belongs(line)}
    records = report.folder.records if report.folder is not None else ()
    epochs = [
        (each.record, index, begin, end)
        for each in records
        if isinstance(each, ReadRecord) and each.record.mnb.label in tests
        for rank in each.record.mnb.ranks
        for index, (begin, end) in enumerate(pairwise(epoch_edges(rank.slices)))
    ]
    return (section("timings", "Epochs", epochs, *_TIMINGS),) if epochs else ()


def epoch_edges(slices: Sequence[SliceRow]) -> Iterator[float]:
    """When epochs began and ended, on the node's monotonic clock; within a slice, images are spread evenly."""
    done = 0
    yield from (row.start_s for row in slices[:1])
    for row in slices:
        for edge in range((done // EPOCH + 1) * EPOCH, done + row.count + 1, EPOCH):
            yield row.start_s + row.length_s * (edge - done) / row.count
        done += row.count


LAYOUT = SuiteLayout(table=table, tables=tables)

_COLUMNS: tuple[Column[tuple[LoadingResult, int]], ...] = (
    Column("loading_strategy", value=lambda row: row[0].strategy.replace("_", "-")),
    Column("repetition", value=lambda row: row[0].repetitions[row[1]]),
    Column("io_limit", value=lambda row: row[0].limit),
    Column("epoch_mean_s", value=lambda row: f"{row[0].epochs_s[row[1]]:.6f}"),
    Column("gpu_util_fraction", value=lambda row: _shown(row[0].loads[row[1]], 6)),
    Column(f"images_per_s({EPOCH}/epoch)", value=lambda row: f"{EPOCH / row[0].epochs_s[row[1]]:.2f}"),
)

_TIMINGS: tuple[Column[tuple[Record, int, float, float]], ...] = (
    Column("test", value=lambda row: row[0].mnb.label),
    Column("launch", value=lambda row: row[0].job_id),
    Column("epoch_index", value=lambda row: row[1]),
    Column("time", value=lambda row: f"{row[3] - row[2]:.6f}"),
    Column("start_time", value=lambda row: f"{row[2]:.6f}"),
    Column("end_time", value=lambda row: f"{row[3]:.6f}"),
    Column("kept", value=lambda row: row[1] >= WARM_UP),
)


def _of_limit(limit: str, results: tuple[LoadingResult, ...]) -> Section:
    own = [each for each in results if each.limit == limit]
    first = next((each.epoch_s for each in own if each.strategy == STRATEGIES[0]), None)
    return section(
        limit,
        limit,
        own,
        Column[LoadingResult]("Strategy", value=lambda each: each.name),
        Column[LoadingResult]("Epoch [s]", value=_epoch),
        Column[LoadingResult]("images/s", value=lambda each: f"{EPOCH / each.epoch_s:.2f}"),
        Column[LoadingResult]("GPU utilization", value=lambda each: _shown(each.load, 3)),
        Column[LoadingResult]("original : this", value=lambda each: _shown(first and first / each.epoch_s, 2)),
        Column[LoadingResult]("Test", value=lambda each: each.test),
    )


def _required(report: Report) -> tuple[LoadingResult, ...]:
    chosen(report, SUITE, _belongs)
    return loading_results(report)


def _belongs(line: Line) -> bool:
    return line.row.work.unit == "images" and line.row.work.options.get("strategy") in STRATEGIES


def _result(line: Line) -> LoadingResult:
    row = line.row
    return LoadingResult(
        strategy=str(row.work.options["strategy"]),
        limit=" and ".join(_limits(row)) or UNLIMITED,
        repetitions=tuple(row.repeats),
        epochs_s=tuple(EPOCH / rate for rate in row.repeats.values()),
        loads=tuple(row.gpu_load.get(repeat) for repeat in row.repeats),
        test=line.scored.test,
    )


def _limits(row: TestSummary) -> Iterator[str]:
    """The limits in words; one that nothing held is none."""
    for limit in row.read_limits:
        rate = format_limit(limit.bytes_per_s)
        yield f"{UNLIMITED} ({rate} asked, not held)" if limit.method == "none" else rate


def _epoch(each: LoadingResult) -> Cell:
    deviation = f" +- {each.deviation_s:.2f}" if each.deviation_s is not None else ""
    return f"{each.epoch_s:.2f}{deviation}"


def _shown(value: float | None, digits: int) -> Cell:
    return NOTHING if value is None else f"{value:.{digits}f}"
