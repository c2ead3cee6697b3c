"""A comparison with a baseline, as values."""

from __future__ import annotations

from typing import Literal

import msgspec

from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.statistics.effects import MARGIN, Effect
from milabench_ng.report.statistics.intervals import Interval
from milabench_ng.report.summary.comparable import WorkDifference
from milabench_ng.report.summary.summary import OriginKind, Provenance


class ComparedTest(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline's rates of one test in the run's unit, and the run's ratios to them; None if there are none."""

    perf_base: float | None
    perf_ratio: float | None
    perf_base_adj: float | None
    perf_ratio_adj: float | None
    """Of ``perf_adj`` without the bias of few repeats."""
    effect: Effect
    """The ratio of ``perf`` with its interval; the p values of a table are adjusted for the number of its tests."""
    suppressed: str = ""
    """Why the ratios mean nothing; empty if they do."""
    suppressed_ratio: float | None = None
    """What ``perf_ratio`` would be: shown in grey, since it may hide a fault. It never counts."""
    set_aside: str = ""
    """Why the ratios are shown but do not count: the work is different or unknown."""
    band: EstimateBand | None = None
    """The band of ``perf_ratio``, if a side is estimated."""
    origin: OriginKind = "measured"
    """The origin of the baseline's row."""

    @property
    def known(self) -> EstimateBand | Interval | None:
        """The range of the ratio: the band of an estimate, else the interval over repeats."""
        return self.band or self.effect.ratio


class SubRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio over some of the tests that both sides have."""

    name: str
    labels: tuple[str, ...]
    ratio: float | None
    """Ratio of the scores over these tests."""
    band: EstimateBand | None = None
    """The band of ``ratio``, if rows are estimated."""
    effect: Effect

    @property
    def known(self) -> EstimateBand | Interval | None:
        """The range of the ratio: the band of estimates, else the interval over repeats."""
        return self.band or self.effect.ratio


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of both sides over the weighted tests that both have, in the unit of the run's score."""

    name: str
    """As given: a folder, a file or a shipped baseline."""
    label: str = ""
    """A short name for column headings; empty for the only baseline."""
    provenance: Provenance
    status: Literal["complete", "partial", "none"]
    """complete: over every weighted test of a complete run; partial: over some; none: no weighted test in common."""
    tests: int
    of: int
    left_out: tuple[str, ...]
    """Weighted tests that do not count because a side lacks them or the work differed."""
    reasons: dict[str, str] = {}
    """Why they are left out, by test."""
    counted: tuple[str, ...] = ()
    """The weighted tests that the ratio covers."""
    score: float | None
    """The baseline's score per device."""
    per_node: float | None
    devices: int
    run_score: float | None
    """The run's score per device over the same tests."""
    ratio: float | None
    """Of the scores without the bias of few repeats."""
    interval: Interval | None = None
    """The interval of ``ratio``; None for estimates, and if a side was not repeated."""
    ratio_per_node: float | None
    levels: tuple[float, float] | None = None
    """What ``ratio`` is of: both scores over the tests that count, without the bias of few repeats."""
    indicative: tuple[str, ...] = ()
    """Why the score ratio is only indicative; empty if it is not."""
    rows: dict[str, ComparedTest]
    margin: float = MARGIN
    """The relative difference that does not matter."""
    effect: Effect
    """The throughput ratio over the weighted tests that count, without penalties for spread or failures."""
    band: EstimateBand | None = None
    """The band of ``ratio``, if rows are estimated: one rule made them all, so that their errors are correlated."""
    checked: str = ""
    """How well the rule behind the estimated rows did on known pairs."""
    subsets: tuple[SubRatio, ...] = ()
    differences: tuple[WorkDifference, ...] = ()

    @property
    def node_interval(self) -> Interval | None:
        """The interval of ``ratio_per_node``."""
        known = self.interval
        return known.scaled(self.ratio_per_node / known.value) if known and self.ratio_per_node else None

    @property
    def node_band(self) -> EstimateBand | None:
        """The band of ``ratio_per_node``, if rows are estimated."""
        return self.band.scaled(self.ratio_per_node / self.band.value) if self.band and self.ratio_per_node else None
