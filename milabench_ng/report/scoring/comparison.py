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
    """The baseline's rates of one test in the run's unit, and the run's over them; None where there is none."""

    perf_base: float | None
    perf_ratio: float | None
    perf_base_adj: float | None
    perf_ratio_adj: float | None
    effect: Effect
    """The ratio of ``perf`` with its interval; the p values of a table are adjusted for the number of its tests."""
    suppressed: str = ""
    """Why the ratios are not shown; empty where they are."""
    set_aside: str = ""
    """Why the ratios are shown and do not count: of different or unknown work."""
    band: EstimateBand | None = None
    """Of ``perf_ratio``, where a side is estimated."""
    origin: OriginKind = "measured"
    """Of the baseline's row."""

    @property
    def known(self) -> EstimateBand | Interval | None:
        """Between what the ratio lies: the band of an estimate, else the interval over repeats."""
        return self.band or self.effect.ratio


class SubRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio over some of the tests that both sides have."""

    name: str
    labels: tuple[str, ...]
    ratio: float | None
    """Of the scores over these tests."""
    band: EstimateBand | None = None
    """Of ``ratio``, where rows are estimated."""
    effect: Effect

    @property
    def known(self) -> EstimateBand | Interval | None:
        """Between what the ratio lies: the band of estimates, else the interval over repeats."""
        return self.band or self.effect.ratio


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of both over the weighted tests that both have, in classic units."""

    name: str
    """As it was given: a folder, a file or a shipped baseline."""
    label: str = ""
    """Short, for the heading of a column; empty where it is the only baseline."""
    provenance: Provenance
    status: Literal["complete", "partial", "none"]
    """complete: over every weighted test of a complete run; partial: over some; none: no weighted test in common."""
    tests: int
    of: int
    left_out: tuple[str, ...]
    """Weighted tests that do not count, because a side lacks them or the work was not the same."""
    reasons: dict[str, str] = {}
    """Why, by test."""
    counted: tuple[str, ...] = ()
    """The weighted tests that the ratio is over."""
    score: float | None
    """Per device, of the baseline."""
    per_node: float | None
    devices: int
    run_score: float | None
    """Per device, of the run over the same tests."""
    ratio: float | None
    """``run_score / score``."""
    ratio_per_node: float | None
    indicative: tuple[str, ...] = ()
    """Why the ratio of the scores is not more than an indication; empty where it is."""
    rows: dict[str, ComparedTest]
    margin: float = MARGIN
    """The relative difference that does not matter."""
    effect: Effect
    """The ratio of throughputs over the weighted tests that count: no charge for spread or failures."""
    band: EstimateBand | None = None
    """Of ``ratio``, where rows are estimated: one rule made them all, so that they err together."""
    checked: str = ""
    """How well the rule behind the estimated rows did where the truth is known."""
    subsets: tuple[SubRatio, ...] = ()
    differences: tuple[WorkDifference, ...] = ()

    @property
    def node_interval(self) -> Interval | None:
        """Of ``ratio_per_node``, the charges for spread and failures taken as they are."""
        known = self.effect.ratio
        return known.scaled(self.ratio_per_node / known.value) if known and self.ratio_per_node else None

    @property
    def node_band(self) -> EstimateBand | None:
        """Of ``ratio_per_node``, where rows are estimated."""
        return self.band.scaled(self.ratio_per_node / self.band.value) if self.band and self.ratio_per_node else None

    @property
    def node_known(self) -> EstimateBand | Interval | None:
        """Between what ``ratio_per_node`` lies."""
        return self.node_band or self.node_interval
