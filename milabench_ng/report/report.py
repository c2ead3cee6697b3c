"""The report: everything that is printed, in one value; the renderers only write it down."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from milabench_ng.report.compare import ComparedTest, Comparison, compare
from milabench_ng.report.cost import Price, PricePer, cost
from milabench_ng.report.folder import load, load_baseline
from milabench_ng.report.launches import weakest_tier
from milabench_ng.report.score import FailureRate, Score, ScoredTest, failure_rate, score, scored_tests
from milabench_ng.report.summary import Failed, Summary, TestSummary
from milabench_ng.report.weights import Weights, load_weights, spread_unplanned

NOT_RECORDED = "not recorded"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One test of the report."""

    scored: ScoredTest
    compared: ComparedTest | None
    node_total: float | None
    """Items per second of all devices that work on the test at the same time."""
    causes: dict[str, int]
    """Failures by cause."""
    row: TestSummary


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run, and what it is worth."""

    source: str
    summary: Summary
    isolation: str
    """The weakest tier of all launches, or ``"not recorded"``."""
    penalize_variance: bool
    score: Score | None
    """None where there are no weights for the suite."""
    failure_rate: FailureRate
    lines: tuple[Line, ...]
    comparison: Comparison | None
    price: Price | None

    @property
    def isolated(self) -> bool:
        """Whether the kernel held every launch to its share."""
        return self.isolation == "full"

    @property
    def failed(self) -> tuple[tuple[str, Failed], ...]:
        """Every failed launch with its test."""
        return tuple((line.scored.test, failed) for line in self.lines for failed in line.row.failed)

    @property
    def marks(self) -> dict[str, int]:
        """Everything that makes launches not comparable, with the number of tests that it holds for."""
        return dict(Counter(mark for line in self.lines for mark in line.row.marks))

    @property
    def exit_code(self) -> int:
        """0: all well; 1: a launch failed or the score is invalid."""
        invalid = self.score is not None and self.score.status == "invalid"
        return int(invalid or self.failure_rate.fail > 0)


def make_report(
    source: Path,
    *,
    weights: Path | None = None,
    compare_to: str | None = None,
    price: float | None = None,
    price_per: PricePer = "node",
    penalize_variance: bool = True,
) -> Report:
    """The report on a result folder or a stored summary.

    ``weights``: a file, else the shipped one of the suite; ``compare_to``: a folder, a summary or a shipped baseline;
    ``price``: of a node or of one GPU.
    """
    summary = load(source)
    baseline = load_baseline(compare_to) if compare_to is not None else None
    return build_report(
        summary,
        str(source),
        weights=load_weights(weights, summary.suite),
        baseline=None if baseline is None or compare_to is None else (compare_to, baseline),
        price=None if price is None else (price, price_per),
        penalize_variance=penalize_variance,
    )


def build_report(
    summary: Summary,
    source: str,
    *,
    weights: Weights | None,
    baseline: tuple[str, Summary] | None = None,
    price: tuple[float, PricePer] | None = None,
    penalize_variance: bool = True,
) -> Report:
    """The report on ``summary``. Pure. ``baseline`` with its name, ``price`` with what it is the price of."""
    effective = spread_unplanned(weights or {}, summary.devices)
    scored = scored_tests(summary, effective, penalize_variance=penalize_variance)
    own = score(summary, weights, penalize_variance=penalize_variance) if weights else None
    comparison = None
    if baseline is not None:
        name, other = baseline
        comparison = compare(summary, other, name, effective, own, penalize_variance=penalize_variance)
    return Report(
        source=source,
        summary=summary,
        isolation=_isolation(summary),
        penalize_variance=penalize_variance,
        score=own,
        failure_rate=failure_rate(summary),
        lines=tuple(_line(row, summary.tests[row.test], comparison) for row in scored),
        comparison=comparison,
        price=cost(*price, own) if price is not None else None,
    )


def _line(scored: ScoredTest, row: TestSummary, comparison: Comparison | None) -> Line:
    return Line(
        scored=scored,
        compared=comparison.rows.get(scored.test) if comparison else None,
        node_total=None if scored.perf is None else scored.perf * row.devices,
        causes=dict(Counter(failed.cause for failed in row.failed)),
        row=row,
    )


def _isolation(summary: Summary) -> str:
    tiers = [tier for row in summary.tests.values() for tier in row.tiers]
    return weakest_tier(tiers) if tiers else NOT_RECORDED
