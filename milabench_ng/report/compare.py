"""A run against a baseline, test by test and over the tests that both have. Pure."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from milabench_ng.report.score import Score, ScoredTest, mean_over, scored_tests
from milabench_ng.report.summary import Provenance, Summary
from milabench_ng.report.weights import Weights


class ComparedTest(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline's rates of one test in the run's unit, and the run's over them; None where there is none."""

    perf_base: float | None
    perf_ratio: float | None
    perf_base_adj: float | None
    perf_ratio_adj: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of both over the weighted tests that both have, in classic units."""

    name: str
    provenance: Provenance
    status: Literal["complete", "partial", "none"]
    """complete: over every weighted test of a complete run; partial: over some; none: no weighted test in common."""
    tests: int
    of: int
    left_out: tuple[str, ...]
    """Weighted tests that the run or the baseline lacks."""
    score: float | None
    """Per device, of the baseline."""
    per_node: float | None
    devices: int
    run_score: float | None
    """Per device, of the run over the same tests."""
    ratio: float | None
    """``run_score / score``."""
    ratio_per_node: float | None
    rows: dict[str, ComparedTest]


def compare(
    run: Summary,
    baseline: Summary,
    name: str,
    weights: Weights,
    run_score: Score | None,
    *,
    penalize_variance: bool = True,
) -> Comparison:
    """``run`` over ``baseline``; ``weights`` are the effective ones of the run, empty without any.

    The baseline's failures and spread are charged like the run's own.
    """
    ours = {row.test: row for row in scored_tests(run, weights, penalize_variance=penalize_variance)}
    theirs = {row.test: row for row in scored_tests(baseline, weights, penalize_variance=penalize_variance)}
    unusable = run_score.missing if run_score else ()
    common = [
        label
        for label in weights
        if label not in unusable and _has_value(ours.get(label)) and _has_value(theirs.get(label))
    ]
    base = mean_over(theirs, common, weights) if common else None
    own = mean_over(ours, common, weights) if common else None
    ratio = _ratio(own, base)
    whole = run_score is not None and run_score.status == "complete" and len(common) == len(weights)
    return Comparison(
        name=name,
        provenance=baseline.provenance,
        status=("complete" if whole else "partial") if common else "none",
        tests=len(common),
        of=len(weights),
        left_out=tuple(label for label in weights if label not in common),
        score=base,
        per_node=None if base is None else base * baseline.devices,
        devices=baseline.devices,
        run_score=own,
        ratio=ratio,
        ratio_per_node=None if ratio is None else ratio * run.devices / baseline.devices,
        rows={label: _compared(row, theirs[label]) for label, row in ours.items() if label in theirs},
    )


def _compared(run: ScoredTest, base: ScoredTest) -> ComparedTest:
    """Both in the run's unit, by way of classic units."""
    perf_base = _in_unit_of(run, base, base.perf)
    adjusted = _in_unit_of(run, base, base.perf_adj)
    return ComparedTest(
        perf_base=perf_base,
        perf_ratio=_ratio(run.perf, perf_base),
        perf_base_adj=adjusted,
        perf_ratio_adj=_ratio(run.perf_adj, adjusted),
    )


def _in_unit_of(run: ScoredTest, base: ScoredTest, value: float | None) -> float | None:
    if value is None or run.classic_factor is None or base.classic_factor is None:
        return None
    return value * base.classic_factor / run.classic_factor


def _has_value(row: ScoredTest | None) -> bool:
    return row is not None and row.perf_adj is not None


def _ratio(run: float | None, base: float | None) -> float | None:
    if run is None or not base or not math.isfinite(base):
        return None
    return run / base
