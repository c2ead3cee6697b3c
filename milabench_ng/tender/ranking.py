"""The ranking of bids, and the Pareto-optimal ones. Pure.

A bid's throughput is the weighted geometric mean over the ranked tests, each the geometric mean of its repeats. Tests
and weights are the same for all bids and for their ratios to the reference, so what is printed is what is ranked, and
the rank depends neither on the order of the bids nor on which bid's node has more devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.other_machine import machine_variance, predicted
from milabench_ng.analysis.scoring.score import log_ratio
from milabench_ng.analysis.scoring.scored import ScoredTest
from milabench_ng.analysis.scoring.weights import Weights, planned_weights
from milabench_ng.analysis.statistics.effects import holm, p_value
from milabench_ng.analysis.statistics.intervals import LEVEL, RANKED_FROM, Estimate, combine
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.report.report import Report
from milabench_ng.tender.same_work import OtherWork


def rank(reports: Mapping[str, Report], costs: Mapping[str, float], weights: Weights) -> tuple[dict[str, int], str]:
    """The rank of every bid that can have one, over the tests in ``weights``; and why others, or all, have none."""
    known = [name for name, report in reports.items() if not why_unfit(report)]
    if len(known) < 2:
        return {}, "fewer than two bids have a complete score within the failure limit"
    if not weights:
        return {}, "no weighted test is comparable across all bids and the reference"
    pairs = combinations(known, 2)
    estimates = {(a, b): cheaper_by(reports[a], costs[a], reports[b], costs[b], weights) for a, b in pairs}
    firm = {pair: estimate for pair, estimate in estimates.items() if estimate and estimate.n >= RANKED_FROM}
    repeated = [name for name in known if any(name in pair for pair in firm)]
    thin = f"fewer than {RANKED_FROM} repeats"
    if len(firm) < math.comb(len(repeated), 2) or not firm:
        return {}, thin
    cheaper = dict.fromkeys(repeated, 0)
    for ((a, b), estimate), p in zip(firm.items(), holm([p_value(one) for one in firm.values()]), strict=True):
        if p < 1 - LEVEL:
            cheaper[b if estimate.mean > 0 else a] += 1
    left = [name for name in known if name not in repeated]
    dearer = {b: estimate.mean for (a, b), estimate in firm.items() if a == repeated[0]}
    return _in_order(cheaper, {repeated[0]: 0.0} | dearer), f"{', '.join(left)}: {thin}" if left else ""


def _in_order(cheaper: Mapping[str, int], costs: Mapping[str, float]) -> dict[str, int]:
    """The ranks: no bid ranks behind one that costs more for its throughput, however well that one is known."""
    ranks: dict[str, int] = {}
    best = len(cheaper)
    for name in sorted(costs, key=costs.__getitem__, reverse=True):
        ranks[name] = best = min(best, 1 + cheaper[name])
    return ranks


def cheaper_by(a: Report, cost_a: float, b: Report, cost_b: float, weights: Weights) -> Estimate | None:
    """The logarithm of the throughput per cost of ``a`` over that of ``b``, over the tests in ``weights``."""
    ours, theirs = scored_rows(a), scored_rows(b)
    estimate = combine(log_ratio(ours, theirs, list(weights), weights))
    if estimate is None:
        return None
    nodes = math.log(a.summary.devices / cost_a) - math.log(b.summary.devices / cost_b)
    wider = predicted(estimate, machine_variance(ours, weights) + machine_variance(theirs, weights))
    return msgspec.structs.replace(wider, mean=wider.mean + nodes)


def pareto_set(points: Mapping[str, tuple[float, float | None]]) -> set[str]:
    """The bids that no other dominates; ``points`` has cost and throughput by name."""
    known = {name: (cost, done) for name, (cost, done) in points.items() if done is not None}
    return {
        name
        for name, (cost, done) in known.items()
        if not any((other[0] <= cost and other[1] >= done) and other != (cost, done) for other in known.values())
    }


def common_tests(reports: Mapping[str, Report], weights: Weights, apart: Sequence[OtherWork]) -> list[str]:
    """The weighted tests that every bid with a valid score measured, the same work in all bids."""
    fit = [report for report in reports.values() if not why_unfit(report)]
    unlike = {one.test for one in apart}
    return [label for label in weights if fit and label not in unlike and all(_has(at, label, weights) for at in fit)]


def _has(report: Report, label: str, weights: Weights) -> bool:
    """Whether a bid's node has a weighted test and a rate of it."""
    row = scored_rows(report).get(label)
    planned = label in planned_weights(weights, report.summary)
    return planned and row is not None and bool(row.perf and row.classic_factor)


def common_with_reference(reports: Mapping[str, Report], tests: Sequence[str]) -> list[str]:
    """Those of ``tests`` whose ratio to the reference counts for every bid with a valid score."""
    counted = [other.counted for report in reports.values() if not why_unfit(report) if (other := reference_of(report))]
    return [label for label in tests if all(label in each for each in counted)]


def scored_rows(report: Report) -> dict[str, ScoredTest]:
    return {line.scored.test: line.scored for line in report.lines}


def why_unfit(report: Report) -> str:
    """Why a bid has no ratio and no rank; empty if it can have them. An invalid score cannot win, nor can a node that
    fails more often than one may."""
    if report.score is None:
        return "the suite has no official weights"
    if report.score.status != "complete":
        lacking = ", ".join(map(name_of_row, report.score.missing))
        why = "; ".join(report.score.reasons) or "no weighted test counts"
        return f"the score is {report.score.status}: {why}{f' ({lacking})' if lacking else ''}"
    return report.failure_rate.excess


def ratio_of(report: Report) -> float | None:
    """The ratio to the reference; None for a bid that is unfit."""
    other = reference_of(report)
    return other.ratio_per_node if other is not None and not why_unfit(report) else None


def reference_of(report: Report) -> Comparison | None:
    """The comparison that bids are ranked by: the one with the first baseline."""
    return report.comparisons[0] if report.comparisons else None
