"""A comparison with a baseline, as values.

It has one ratio: that of the throughputs over the tests that both sides did alike, with its interval and its verdict.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from milabench_ng.analysis.statistics.effects import MARGIN, Effect
from milabench_ng.analysis.statistics.intervals import Interval, RepeatRange
from milabench_ng.analysis.summary.summary import OriginKind, Provenance
from milabench_ng.records.work import WorkDifference

_ROUNDED = 1e-6
"""Rates of the same launches differ by no more, whichever version read them."""


class ComparedTest(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline's rates of one test in the run's unit, and the run's ratios to them; None if there are none."""

    perf_base: float | None
    perf_ratio: float | None
    """Of the throughputs, the geometric means of the repeats: it may differ a little from that of the mean rates."""
    perf_base_adj: float | None
    perf_ratio_adj: float | None
    """Of ``perf_adj``, which is charged for spread and failures."""
    effect: Effect
    """The interval of ``perf_ratio``; the p values of a table are adjusted for the number of its tests."""
    suppressed: str = ""
    """Why the ratios mean nothing; empty if they do."""
    suppressed_ratio: float | None = None
    """What ``perf_ratio`` would be: shown in grey, since it may hide a fault. It never counts."""
    set_aside: str = ""
    """Why the ratios are shown but do not count: the work is different or unknown."""
    origin: OriginKind = "measured"
    """The origin of the baseline's row."""


class SubRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio over some of the tests that both sides have."""

    name: str
    labels: tuple[str, ...]
    ratio: float | None
    """Of the throughputs over these tests."""
    effect: Effect
    left_out: str = ""
    """The test that it is without; empty for the other ratios."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A run over a baseline, over the weighted tests that both did alike."""

    name: str
    """As given: a folder, a file or a shipped baseline."""
    label: str = ""
    """A short name for column headings; empty for the only baseline."""
    provenance: Provenance
    other_suites: tuple[str, ...] = ()
    """The suites of the baseline, if none of them is one of the run."""
    status: Literal["complete", "partial", "none"]
    """complete: over every weighted test of a complete run; partial: over some; none: no weighted test in common."""
    tests: int
    of: int
    weight_pct: float
    """The share of the weights that the ratio covers, in percent."""
    estimates: tuple[str, ...] = ()
    """What the estimated rows that count were made by, such as ``h200 times 0.428``."""
    left_out: tuple[str, ...]
    """Weighted tests that do not count because a side lacks them or the work differed."""
    reasons: dict[str, str] = {}
    """Why they are left out, by test."""
    counted: tuple[str, ...] = ()
    """The weighted tests that the ratio covers."""
    devices: int
    ratio: float | None
    """Of the throughputs per device, which are charged for nothing: `Effect.ratio` has its interval."""
    repeats: RepeatRange | None = None
    """``ratio`` of single repeats, where these are too few for an interval."""
    ratio_per_node: float | None
    score: float | None
    """The baseline's score per device over the same tests, in the unit of the run's score."""
    run_score: float | None
    """The run's score per device over the same tests."""
    same_run: bool = False
    """Whether the baseline is the run itself."""
    indicative: tuple[str, ...] = ()
    """Why the ratio is only indicative; empty if it is not."""
    rows: dict[str, ComparedTest]
    margin: float = MARGIN
    """The relative difference that does not matter."""
    effect: Effect
    """The interval and the verdict of ``ratio``."""
    subsets: tuple[SubRatio, ...] = ()
    differences: tuple[WorkDifference, ...] = ()

    @property
    def other_rates(self) -> tuple[str, ...]:
        """The tests whose rates differ, though it is of the same run: one of both was changed, or has more launches."""
        ratios = {label: row.perf_ratio for label, row in self.rows.items() if self.same_run and row.perf_ratio}
        return tuple(label for label, ratio in ratios.items() if abs(math.log(ratio)) > _ROUNDED)

    @property
    def charged_ratio(self) -> float | None:
        """Of the scores, which are charged for spread and failures."""
        return self.run_score / self.score if self.run_score and self.score else None

    @property
    def node_interval(self) -> Interval | None:
        """The interval of ``ratio_per_node``."""
        known = self.effect.ratio
        return known.scaled(self.ratio_per_node / known.value) if known and self.ratio_per_node else None
