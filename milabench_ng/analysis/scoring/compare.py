"""Compare a run with a baseline, test by test and over the tests that both have. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from milabench_ng.analysis.scoring.comparison import ComparedTest, Comparison, SubRatio
from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.other_machine import enough_sessions
from milabench_ng.analysis.scoring.reference import Reference
from milabench_ng.analysis.scoring.score import (
    Score,
    level,
    log_ratio,
    mean_over,
    ratio_of,
    repeat_range,
    throughput_ratio,
    why_unknown,
)
from milabench_ng.analysis.scoring.scored import ScoredRows, ScoredTest, scored_tests
from milabench_ng.analysis.scoring.subsets import Subset, all_but_one, subsets
from milabench_ng.analysis.scoring.weights import Groups, Weights
from milabench_ng.analysis.statistics.effects import MARGIN, Effect, effect, effects, of_these_sessions
from milabench_ng.analysis.summary.comparable import differences, other_generation
from milabench_ng.analysis.summary.marked import count_marks
from milabench_ng.analysis.summary.summary import OriginKind, Summary
from milabench_ng.model.grouping import gathered
from milabench_ng.records.work import Ratio, WorkDifference

MEASURED_ROWS = "measured rows"
ESTIMATED = "estimated, not measured"


def compare(
    run: Summary,
    baseline: Summary,
    name: str,
    weights: Weights,
    run_score: Score | None,
    *,
    penalize_variance: bool = True,
    margin: float = MARGIN,
    label: str = "",
    reference: Reference | None = None,
    groups: Groups = MappingProxyType({}),
) -> Comparison:
    """``run`` over ``baseline``; ``weights`` are the run's effective ones, empty if there are none.

    ``reference``: what the scores are relative to; the ratio is the same with any.

    If a side fails more often than a node may, there is no verdict on its throughput.
    """
    failing = _failing(run, baseline)
    ours = scored_tests(run, weights, penalize_variance=penalize_variance)
    theirs = scored_tests(baseline, weights, penalize_variance=penalize_variance)
    found = differences(run, baseline)
    suppressed, aside = _reasons(found, "suppressed"), _reasons(found, "not counted")
    missing = dict.fromkeys(run_score.missing, "the run is incomplete there") if run_score else {}
    reasons = {
        label: why
        for label in weights
        if (why := _why_not(label, suppressed, aside, missing) or _lacks(label, ours, theirs))
    }
    common = [label for label in weights if label not in reasons]
    one = level(reference, common, weights, penalize=penalize_variance)
    ratio = throughput_ratio(ours, theirs, common, weights) if common else None
    whole = run_score is not None and run_score.status == "complete" and len(common) == len(weights)
    return Comparison(
        name=name,
        label=label,
        provenance=baseline.provenance,
        other_suites=() if set(run.known_suites) & set(baseline.known_suites) else baseline.known_suites,
        status=("complete" if whole else "partial") if common else "none",
        tests=len(common),
        of=len(weights),
        weight_pct=100 * math.fsum(weights[each] for each in common) / math.fsum(weights.values()) if weights else 0.0,
        estimates=_estimates(baseline, common),
        left_out=tuple(reasons),
        reasons=reasons,
        counted=tuple(common),
        devices=baseline.devices,
        ratio=ratio,
        ratio_per_node=None if ratio is None else ratio * run.devices / baseline.devices,
        score=ratio_of(mean_over(theirs, common, weights), one) if common else None,
        run_score=ratio_of(mean_over(ours, common, weights), one) if common else None,
        repeats=repeat_range(ratio, ours, theirs, common, weights) if ratio else None,
        same_run=run.is_of_the_run(baseline),
        indicative=_indicative(run, baseline, common),
        rows={
            label: msgspec.structs.replace(row, effect=_withheld(row.effect, failing))
            for label, row in _rows(
                ours, theirs, suppressed, aside, margin, {label: baseline.origin(label) for label in theirs}
            ).items()
        },
        margin=margin,
        effect=_withheld(_effect(ours, theirs, common, weights, margin), failing),
        subsets=tuple(
            SubRatio(
                name=each.name,
                labels=each.labels,
                ratio=throughput_ratio(ours, theirs, each.labels, weights),
                effect=_withheld(_effect(ours, theirs, each.labels, weights, margin), failing),
                left_out=each.left_out,
            )
            for each in (
                *subsets(ours, common, groups),
                *_measured_rows(run, baseline, common),
                *all_but_one(common, groups),
            )
        ),
        differences=found,
    )


def _failing(run: Summary, baseline: Summary) -> str:
    """Which side fails more often than a node may; empty if neither does."""
    found = {"the run": failure_rate(run).excess, "the baseline": failure_rate(baseline).excess}
    return "; ".join(f"{side}: {excess}" for side, excess in found.items() if excess)


def _withheld(found: Effect, failing: str) -> Effect:
    """No verdict on what a node does that fails too often."""
    if not failing or found.verdict == "not judged":
        return found
    return msgspec.structs.replace(found, verdict="not judged", why=failing)


def _of_sessions(found: Effect, run: ScoredRows, base: ScoredRows, labels: Sequence[str]) -> Effect:
    """No verdict that another day may turn, where a side has too few sessions to show how days differ."""
    known = labels and all(enough_sessions(rows, labels) for rows in (run, base))
    return found if known else of_these_sessions(found)


def _effect(run: ScoredRows, base: ScoredRows, labels: Sequence[str], weights: Weights, margin: float) -> Effect:
    if any(rows[label].estimated for rows in (run, base) for label in labels):
        return Effect(ratio=None, verdict="not judged", why=ESTIMATED)
    parts = log_ratio(run, base, labels, weights)
    found = _told(effect(parts, margin), why_unknown([run, base], labels, parts))
    return _of_sessions(found, run, base, labels)


def _told(found: Effect, why: str) -> Effect:
    """The same, with the reason if there is no interval."""
    return found if found.ratio else msgspec.structs.replace(found, why=why)


def _why_not(label: str, *reasons: Mapping[str, str]) -> str:
    """All reasons against a test."""
    return "; ".join(each[label] for each in reasons if label in each)


def _lacks(label: str, run: ScoredRows, base: ScoredRows) -> str:
    """Which side has no rate of a test in known items; empty if both have one."""
    for side, rows in (("the run", run), ("the baseline", base)):
        why = (rows[label].why_not or rows[label].why_no_rate) if label in rows else "no rate"
        if why:
            return f"{side} has {why}"
    return ""


def _estimates(baseline: Summary, labels: Sequence[str]) -> tuple[str, ...]:
    rows = (baseline.tests[label] for label in labels)
    return tuple(dict.fromkeys(row.origin.source for row in rows if row.estimate and row.origin))


def _indicative(run: Summary, baseline: Summary, labels: Sequence[str]) -> tuple[str, ...]:
    """Why a ratio is only indicative: it is not if all of the baseline's weighted rows were measured, without marks,
    with software of the same generation."""
    found = []
    for kind in ("published", "estimated"):
        rows = [label for label in labels if baseline.origin(label) == kind]
        if rows:
            found.append(f"{len(rows)} of {len(labels)} rows of the baseline are {kind}")
    marks = count_marks({label: baseline.tests[label] for label in labels})
    found += [f"comparability warning of the baseline: {mark.counted(len(labels))}" for mark in marks]
    foreign = other_generation(run.provenance.software, baseline.provenance.software)
    return (*found, *(f"{name}: {ours} vs. {theirs}" for name, ours, theirs in foreign))


def _measured_rows(run: Summary, baseline: Summary, labels: Sequence[str]) -> list[Subset]:
    """Only the rows measured on both sides, if there are others too."""
    members = tuple(label for label in labels if run.origin(label) == baseline.origin(label) == "measured")
    return [Subset(MEASURED_ROWS, members)] if members and len(members) < len(labels) else []


def _reasons(found: Sequence[WorkDifference], ratio: Ratio) -> dict[str, str]:
    """All reasons, by row, for which differences give its ratio the class ``ratio``."""
    reasons = gathered((label, one.text) for one in found if one.ratio == ratio for label in one.tests)
    return {label: "; ".join(texts) for label, texts in reasons.items()}


def _rows(
    run: ScoredRows,
    base: ScoredRows,
    suppressed: Mapping[str, str],
    aside: Mapping[str, str],
    margin: float,
    origins: Mapping[str, OriginKind],
) -> dict[str, ComparedTest]:
    """Compare rows in the run's unit, by way of classic units."""
    shared = [label for label in run if label in base]
    alike = [
        label
        for label in shared
        if not (label in suppressed or run[label].estimated or base[label].estimated)
        and run[label].classic_factor is not None
        and base[label].classic_factor is not None
    ]
    parts = {label: log_ratio(run, base, [label], {label: 1.0}) for label in alike}
    found = {
        label: _of_sessions(_told(one, why_unknown([run, base], [label], parts[label])), run, base, [label])
        for label, one in zip(alike, effects(list(parts.values()), margin), strict=True)
    }
    return {
        label: _compared(
            run[label], base[label], found.get(label), suppressed.get(label, ""), aside.get(label, ""), origins[label]
        )
        for label in shared
    }


def _compared(
    run: ScoredTest, base: ScoredTest, found: Effect | None, suppressed: str, aside: str, origin: OriginKind
) -> ComparedTest:
    adjusted = _in_unit_of(run, base, base.perf_adj)
    guess = ESTIMATED if run.estimated or base.estimated else ""
    why = suppressed or guess or "no record says what an item is"
    seen = throughput_ratio({"": run}, {"": base}, [""], {"": 1.0})
    return ComparedTest(
        perf_base=_in_unit_of(run, base, base.perf),
        perf_ratio=None if suppressed else seen,
        perf_base_adj=adjusted,
        perf_ratio_adj=None if suppressed or adjusted is None else ratio_of(run.classic, base.classic),
        effect=found or Effect(ratio=None, verdict="not judged", why=why),
        suppressed=suppressed,
        suppressed_ratio=seen if suppressed else None,
        set_aside=aside,
        origin=origin,
    )


def _in_unit_of(run: ScoredTest, base: ScoredTest, value: float | None) -> float | None:
    if value is None or run.classic_factor is None or base.classic_factor is None:
        return None
    return value * base.classic_factor / run.classic_factor
