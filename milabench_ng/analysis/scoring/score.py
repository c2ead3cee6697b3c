"""The score. Pure.

``per_device`` is the weighted geometric mean of the tests' ``perf_adj`` in classic units (those of 2020), and
``per_node`` is that times the number of devices. The interval is that of the score without the bias of few repeats,
widened to the score itself. A ratio of two nodes is one of throughputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.reference import CLASSIC_UNIT, Reference, score_unit
from milabench_ng.analysis.scoring.scored import ONE_AFTER_ANOTHER, ScoredRows, ScoredTest, scored_tests
from milabench_ng.analysis.scoring.weights import Weights, planned_weights
from milabench_ng.analysis.statistics.intervals import (
    RANKED_FROM,
    Estimate,
    Interval,
    LogStat,
    RepeatRange,
    WeightedStat,
    combine,
    interval,
    repeats_needed,
    why_none,
)
from milabench_ng.analysis.statistics.jackknife import Jackknife, sum_by_group
from milabench_ng.analysis.summary.comparable import both_rows
from milabench_ng.analysis.summary.summary import LEFT, Summary, TestSummary
from milabench_ng.model.builtin import Declared, read_builtin
from milabench_ng.model.grouping import gathered
from milabench_ng.model.stats import weighted_geometric_mean
from milabench_ng.model.units import counted

NO_SCORE = "there is no score above 0"


def ratio_of(one: float | None, other: float | None) -> float | None:
    """``one / other``; None if that is no number."""
    if one is None or not other or not math.isfinite(other):
        return None
    return one / other


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The score over all weighted tests, or the reason why there is none."""

    status: Literal["complete", "partial", "invalid"]
    unit: str = CLASSIC_UNIT
    """Classic items/s, or ``x`` and the name of the reference."""
    per_device: float | None
    """In ``unit``; None for an invalid score."""
    per_node: float | None
    devices: int
    tests: int
    """How many tests the score covers."""
    of: int
    """How many tests have a weight."""
    missing: tuple[str, ...]
    """Planned rows that are not complete: they make the score invalid."""
    expected: int = 0
    """How many rows there should be."""
    omitted: tuple[str, ...] = ()
    """Weighted rows that the user did not select: they make the score partial."""
    reasons: tuple[str, ...] = ()
    interval: Interval | None = None
    """Of ``per_device``."""
    repeats: RepeatRange | None = None
    """The scores of the single repeats, where these are too few for an interval."""
    why: str = ""
    """Why there is no interval."""
    repeats_needed: int | None = None
    """Repeats needed for an interval of +-1 %; None without an interval, and above 1000."""
    reference_devices: int | None = None
    """How many devices the reference has, if another number, and tests run over all of them."""
    own_reference: bool = False
    """Whether the reference is this run itself."""


def score(
    summary: Summary, weights: Weights, reference: Reference | None = None, *, penalize_variance: bool = True
) -> Score:
    """The score of ``summary`` over the tests that have a weight, in classic units or relative to ``reference``."""
    effective = planned_weights(weights, summary)
    rows = scored_tests(summary, effective, penalize_variance=penalize_variance)
    omitted = tuple(label for label in effective if label in summary.omitted and label not in rows)
    expected = [label for label in dict.fromkeys([*effective, *summary.tests]) if label not in omitted]
    missing = tuple(label for label in expected if _is_missing(summary.tests.get(label), summary))
    counting = [label for label in effective if label in rows and not rows[label].why_not]
    unlike = [label for label in effective if label in rows and rows[label].of_unknown_items]
    others = other_items(summary, reference, counting)
    counting = [label for label in counting if label not in others]
    reasons = _reasons(summary, missing, omitted, len(effective))
    reasons += tuple(f"{label} has {rows[label].why_not}" for label in unlike)
    alike = gathered((why, label) for label, why in others.items())
    reasons += tuple(f"{', '.join(labels)}: {why}" for why, labels in alike.items())
    status: Literal["complete", "partial", "invalid"] = "complete"
    if missing or not counting:
        status = "invalid"
    elif omitted or reasons:
        status = "partial"
    value = None
    if status != "invalid":
        one = level(reference, counting, effective, penalize=penalize_variance)
        value = ratio_of(mean_over(rows, counting, effective), one)
    parts = charged_parts(rows, counting, effective)
    estimate = combine(parts) if value else None
    return Score(
        status=status,
        unit=score_unit(reference),
        per_device=value,
        per_node=None if value is None else value * summary.devices,
        devices=summary.devices,
        tests=len(counting),
        of=len(effective),
        missing=missing,
        expected=len(expected),
        omitted=omitted,
        reasons=reasons,
        interval=about(value, estimate, one) if value and estimate else None,
        repeats=repeat_range(value, rows, None, counting, effective) if value and estimate else None,
        why=why_unknown([rows], counting, parts) if value else NO_SCORE,
        repeats_needed=repeats_needed(parts) if estimate else None,
        reference_devices=_other_devices(summary, reference, counting),
        own_reference=reference is not None and summary.is_of_the_run(reference.summary),
    )


def about(value: float, estimate: Estimate, one: float) -> Interval | None:
    """The interval of a score ``value`` in a unit of ``one``: of what many repeats would give, widened to ``value``."""
    known = interval(estimate)
    if known is None:
        return None
    many = known.scaled(1 / one)
    return msgspec.structs.replace(many, value=value, low=min(value, many.low), high=max(value, many.high))


def repeat_range(
    value: float, run: ScoredRows, base: ScoredRows | None, labels: Sequence[str], weights: Weights
) -> RepeatRange | None:
    """``value``, a score or a ratio to ``base``, had single repeats been taken for all; None from five on."""
    sides = [_offsets(rows, labels, weights) for rows in (run, base) if rows is not None]
    fewest = min(map(len, sides))
    if not 2 <= fewest < RANKED_FROM:
        return None
    ours, theirs = sides[0], sides[1] if base is not None else [0.0]
    low, high = min(ours) - max(theirs), max(ours) - min(theirs)
    return RepeatRange(low=value * math.exp(low), high=value * math.exp(high), n=fewest)


def _offsets(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> list[float]:
    """How far each repeat that all tests have lies from their mean, as a logarithm."""
    total = math.fsum(weights[label] for label in labels)
    common = [name for name in rows[labels[0]].repeats if all(name in rows[label].repeats for label in labels)]
    logs = [math.fsum(weights[each] * math.log(rows[each].repeats[name]) for each in labels) / total for name in common]
    return [log - math.fsum(logs) / len(logs) for log in logs]


def level(reference: Reference | None, labels: Sequence[str], weights: Weights, *, penalize: bool) -> float:
    """The reference's own score over ``labels``, in classic units, which a score relative to it is divided by.

    The mean of the ratios is the ratio of the means, since they are geometric. 1 without a reference.
    """
    if reference is None:
        return 1.0
    rows = scored_tests(reference.summary, weights, penalize_variance=penalize)
    return mean_over(rows, labels, weights)


def other_items(summary: Summary, reference: Reference | None, labels: Sequence[str]) -> dict[str, str]:
    """The ``labels`` whose items are not those of the reference, or have changed since it was measured, and how."""
    if reference is None:
        return {}
    known = read_builtin()
    pairs = {label: both_rows(label, summary, reference.summary) for label in labels}
    return {label: why for label, (ours, theirs) in pairs.items() if (why := _other_item(ours, theirs, known))}


def _other_item(ours: TestSummary, theirs: TestSummary, known: Mapping[str, Declared]) -> str:
    """How an item differs from that of the reference; empty if it does not."""
    if ours.work.unit != theirs.work.unit:
        return f"counts {ours.work.unit}, but the reference counts {theirs.work.unit}"
    changed = {each.what for each in theirs.departures if each.decides} - {each.what for each in ours.departures}
    if changed:
        return f"other work than the reference, in which {' and '.join(sorted(changed))}"
    declared = known.get(ours.work.workload)
    for name, formerly in declared.formerly.items() if declared else ():
        values = [row.work.options.get(name, formerly) for row in (ours, theirs)]
        if values[0] != values[1] and name not in ours.work.pace_only:
            return f"other work than the reference ({name} is {values[0]}, there {values[1]})"
    return ""


def _other_devices(summary: Summary, reference: Reference | None, labels: Sequence[str]) -> int | None:
    """How many devices the reference has, if another number, and a test of ``labels`` runs over all of them."""
    if reference is None or reference.summary.devices == summary.devices:
        return None
    return reference.summary.devices if any(summary.tests[label].work.scheme.spreads for label in labels) else None


def _is_missing(row: TestSummary | None, summary: Summary) -> bool:
    """Whether a row is absent although it has a weight, or lacks some of its planned records."""
    if row is None or row.missing > 0 or row.pending > 0 or (row.n == 0 and row.estimate is None):
        return True
    return summary.interrupted and any(failed.cause in LEFT for failed in row.failed)


def launches_left(summary: Summary, label: str) -> str:
    """How many launches a row lacks that has results of others, such as ``2 of 4 launches``; empty if it has none."""
    row = summary.tests.get(label)
    left = row.missing + row.pending if row is not None and row.n > row.missing else 0
    return f"{left} of {counted(row.planned, 'launch')}" if row is not None and row.planned and left else ""


def _reasons(summary: Summary, missing: tuple[str, ...], omitted: tuple[str, ...], of: int) -> tuple[str, ...]:
    reasons = []
    if missing:
        reasons.append(f"records are missing in {counted(len(missing), 'test')}")
    if omitted:
        reasons.append(f"{len(omitted)} of {of} weighted tests were not selected")
    if not summary.has_plan and summary.units == "true":
        reasons.append("without run.json, the plan is unknown")
    return tuple(reasons)


def mean_over(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> float:
    """The weighted geometric mean of ``perf_adj`` in classic units over ``labels``; NaN if there are none."""
    return weighted_geometric_mean([rows[label].classic for label in labels], [weights[label] for label in labels])


def throughput_ratio(run: ScoredRows, base: ScoredRows, labels: Sequence[str], weights: Weights) -> float | None:
    """``run`` over ``base``: the weighted geometric mean of the ratios of throughputs; None without a common rate."""
    ours, theirs = (_log_throughput(rows, labels, weights) for rows in (run, base))
    return None if ours is None or theirs is None else math.exp(ours - theirs)


def _log_throughput(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> float | None:
    """The logarithm of the weighted geometric mean in classic units: of `log_parts`, if the repeats are known."""
    parts = log_parts(rows, labels, weights)
    if parts and all(stat is not None for _, stat in parts):
        return math.fsum(c * stat.mean for c, stat in parts if stat is not None)
    logs = [(weights[label], rows[label].log_throughput) for label in labels]
    known = [weight * log for weight, log in logs if log is not None]
    return math.fsum(known) / math.fsum(weight for weight, _ in logs) if known and len(known) == len(logs) else None


def log_ratio(run: ScoredRows, base: ScoredRows, labels: Sequence[str], weights: Weights) -> list[WeightedStat]:
    """The terms of the logarithm of the ratio of two throughputs over the same tests."""
    return [*log_parts(run, labels, weights), *_negative(log_parts(base, labels, weights))]


def log_parts(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> list[WeightedStat]:
    """The terms that sum to the logarithm of the weighted geometric mean of the repeats, in classic units."""
    return _parts({label: (rows[label].throughput, rows[label].classic_log) for label in labels}, weights)


def charged_parts(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> list[WeightedStat]:
    """The terms that sum to the logarithm of the score, as far as its uncertainty is concerned, in classic units."""
    return _parts({label: (rows[label].charged, _charged_log(rows[label])) for label in labels}, weights)


def _charged_log(row: ScoredTest) -> LogStat | None:
    """The repeats' statistic about the logarithm of ``perf_adj``."""
    known = row.classic_log
    return known.shifted(row.classic / math.exp(known.mean)) if known and row.classic else known


def _parts(logs: Mapping[str, tuple[Jackknife | None, LogStat | None]], weights: Weights) -> list[WeightedStat]:
    """One part for all tests whose repeats are known, added up repeat by repeat, and one for each other test."""
    total = math.fsum(weights[label] for label in logs)
    known = [(weights[label] / total, each) for label, (each, _) in logs.items() if each is not None]
    alone: list[WeightedStat] = [(weights[label] / total, stat) for label, (each, stat) in logs.items() if each is None]
    return [*((1.0, part) for part in sum_by_group(known)), *alone]


def _negative(parts: Sequence[WeightedStat]) -> list[WeightedStat]:
    return [(-coefficient, stat) for coefficient, stat in parts]


def why_unknown(sides: Sequence[ScoredRows], labels: Sequence[str], parts: Sequence[WeightedStat]) -> str:
    """Why these tests' ``parts`` have no interval; empty if they have one."""
    serial = any(rows[label].why == ONE_AFTER_ANOTHER for rows in sides for label in labels)
    return ONE_AFTER_ANOTHER if serial else why_none(parts)
