"""The ranking of bids, and the Pareto-optimal ones. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from milabench_ng.report.report import Report
from milabench_ng.report.scoring.comparison import Comparison
from milabench_ng.report.scoring.score import log_ratio
from milabench_ng.report.statistics.effects import RANKED_FROM, holm, p_value
from milabench_ng.report.statistics.intervals import Estimate, combine

_DOUBT = 0.05


def rank(reports: Mapping[str, Report], costs: Mapping[str, float], tests: Sequence[str]) -> tuple[dict[str, int], str]:
    """The rank of every bid with a ratio, over ``tests``; or why there are none."""
    known = {name: report for name, report in reports.items() if ratio_of(report) is not None}
    if len(known) < 2:
        return {}, "fewer than two bids have a ratio to the reference"
    if not tests:
        return {}, "no weighted test is the same work in all bids"
    pairs = list(combinations(known, 2))
    estimates = [cheaper_by(known[a], costs[a], known[b], costs[b], tests) for a, b in pairs]
    if any(estimate is None or estimate.n < RANKED_FROM for estimate in estimates):
        return {}, f"under {RANKED_FROM} repeats"
    firm = [estimate for estimate in estimates if estimate is not None]
    ranks = dict.fromkeys(known, 1)
    for (a, b), estimate, p in zip(pairs, firm, holm([p_value(estimate) for estimate in firm]), strict=True):
        if p < _DOUBT:
            ranks[b if estimate.mean > 0 else a] += 1
    return ranks, ""


def cheaper_by(a: Report, cost_a: float, b: Report, cost_b: float, tests: Sequence[str]) -> Estimate | None:
    """The logarithm of the throughput per cost of ``a`` over that of ``b``, over ``tests``, which both have."""
    ours, theirs = ({line.scored.test: line.scored for line in report.lines} for report in (a, b))
    estimate = combine(log_ratio(ours, theirs, tests, weights_of(a)))
    if estimate is None:
        return None
    nodes = math.log(a.summary.devices / cost_a) - math.log(b.summary.devices / cost_b)
    return msgspec.structs.replace(estimate, mean=estimate.mean + nodes)


def pareto_set(points: Mapping[str, tuple[float, float | None]]) -> set[str]:
    """The bids that no other dominates; ``points`` has cost and ratio by name."""
    known = {name: (cost, ratio) for name, (cost, ratio) in points.items() if ratio is not None}
    return {
        name
        for name, (cost, ratio) in known.items()
        if not any((other[0] <= cost and other[1] >= ratio) and other != (cost, ratio) for other in known.values())
    }


def weights_of(report: Report) -> dict[str, float]:
    """The effective weights."""
    return {line.scored.test: line.scored.weight for line in report.lines if line.scored.weight}


def ratio_of(report: Report) -> float | None:
    """The ratio to the reference; None unless the score is complete, so that an invalid one cannot win."""
    other = reference_of(report)
    usable = other is not None and report.score is not None and report.score.status == "complete"
    return other.ratio_per_node if other is not None and usable else None


def reference_of(report: Report) -> Comparison | None:
    """The comparison that bids are ranked by: the one with the first baseline."""
    return report.comparisons[0] if report.comparisons else None
