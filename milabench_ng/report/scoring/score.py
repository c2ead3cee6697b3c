"""The score. Pure.

``perf_adj = perf * (1 - std%) * (1 - fail/n)``, at least 0; ``per_device`` is the weighted geometric mean of the tests'
``perf_adj`` in classic units (those of 2020), and ``per_node`` is that times the number of devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.report.scoring.reference import CLASSIC_UNIT, Reference, score_unit
from milabench_ng.report.scoring.weights import Weights, spread_unplanned
from milabench_ng.report.statistics.intervals import (
    Interval,
    LogStat,
    WeightedStat,
    combine,
    interval,
    repeats_needed,
    session_stat,
    why_none,
)
from milabench_ng.report.summary.repeats import between_devices, run_to_run
from milabench_ng.report.summary.summary import Summary, TestSummary
from milabench_ng.stats import weighted_geometric_mean


class ScoredTest(msgspec.Struct, frozen=True, kw_only=True):
    """One row. Rates are in items of ``unit`` per second; None means not measured."""

    test: str
    unit: str
    weight: float | None
    n: int
    fail: int
    perf: float | None
    std_pct: float | None
    """Population standard deviation over the mean, in percent."""
    perf_adj: float | None
    classic_factor: float | None
    """Converts this row's rates to classic units; None if no record says what an item is."""
    bound: str | None = None
    between_devices_pct: float | None = None
    """Sample standard deviation of the devices' means over their mean, in percent; None for one device."""
    run_to_run_pct: float | None = None
    """Sample standard deviation of the repeats' means over their mean, in percent; None for one repeat."""
    repeats: dict[str, float] = {}
    """Mean rate over the devices by repeat, in this row's unit; empty if not recorded."""
    sessions: dict[str, int] = {}
    """The session of each repeat; empty if there is only one."""
    log_perf: LogStat | None = None
    """Log statistics of the repeats, in this row's unit; None if not recorded."""
    interval: Interval | None = None
    """The interval of the rate, as the geometric mean of the repeats."""
    why: str = ""
    """Why there is no interval."""
    estimated: tuple[float, float] | None = None
    """The band of an estimated rate, as multiples of the rate."""

    @property
    def classic_log(self) -> LogStat | None:
        """``log_perf`` in classic units."""
        return self.log_perf.shifted(self.classic_factor) if self.log_perf and self.classic_factor else None

    @property
    def session_count(self) -> int:
        """In how many sessions it was repeated."""
        return len(set(self.sessions.values())) or 1

    @property
    def classic(self) -> float:
        """``perf_adj`` in classic units; 0 if there is none."""
        return (self.perf_adj or 0.0) * (self.classic_factor or 0.0)

    @property
    def low(self) -> float | None:
        """The lower end of the rate's interval; None without one."""
        return self.interval.low if self.interval else None

    @property
    def high(self) -> float | None:
        """The upper end of the rate's interval; None without one."""
        return self.interval.high if self.interval else None

    @property
    def of_unknown_items(self) -> bool:
        """Whether its rate cannot be compared with others; 0, if every launch failed, is 0 of any items."""
        return bool(self.perf_adj) and self.classic_factor is None

    @property
    def why_not(self) -> str:
        """Why it cannot be in a score; empty if it can."""
        if self.perf_adj is None:
            return "no rate"
        return "no record of what its items are" if self.of_unknown_items else ""


ScoredRows = Mapping[str, ScoredTest]
"""By test."""


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
    """The interval of ``per_device``, with the penalties for spread and failures taken as exact."""
    why: str = ""
    """Why there is no interval."""
    repeats_needed: int | None = None
    """Repeats needed for an interval of +-1 %; None without an interval, and above 1000."""


def scored_tests(
    summary: Summary, weights: Weights | None, *, penalize_variance: bool = True
) -> tuple[ScoredTest, ...]:
    """Every row of the summary with its ``perf_adj``. ``weights`` are the effective ones."""
    return tuple(
        _scored(label, row, summary.units, (weights or {}).get(label), penalize_variance)
        for label, row in summary.tests.items()
    )


def perf_adj(perf: float, std: float, n: int, failures: int, *, penalize_variance: bool) -> float:
    """``perf`` minus the penalties for spread and failures, at least 0."""
    steady = max(0.0, perf - std) if penalize_variance else perf
    return steady * (1 - failures / n)


def _scored(label: str, row: TestSummary, units: str, weight: float | None, penalize_variance: bool) -> ScoredTest:
    """Score a row in true items if their definition is known, else in those of 2020."""
    factor = row.classic_factor
    scale = 1 / factor if units == "classic" and factor else 1.0
    measured = row.train
    perf = measured.mean if measured else row.estimate.value if row.estimate else None
    adjusted: float | None = None
    if row.estimate is not None:
        adjusted = scale * row.estimate.value  # nothing ran: no spread or failures to penalise
    elif measured is not None:
        adjusted = scale * perf_adj(
            measured.mean, measured.std, row.n, row.failures, penalize_variance=penalize_variance
        )
    elif row.n:
        adjusted = 0.0  # every launch failed
    log_perf = row.log_perf.shifted(scale) if row.log_perf else None
    estimate = combine([(1.0, log_perf)])
    return ScoredTest(
        test=label,
        unit=row.unit,
        weight=weight,
        n=row.n,
        fail=row.failures,
        perf=None if perf is None else scale * perf,
        std_pct=100 * measured.std / measured.mean if measured and measured.mean else None,
        perf_adj=adjusted,
        classic_factor=(factor or 1.0) if units == "classic" else factor,
        bound=row.bound,
        between_devices_pct=between_devices(row),
        run_to_run_pct=run_to_run(row),
        repeats={repeat: scale * rate for repeat, rate in row.repeats.items()},
        sessions=row.sessions,
        log_perf=log_perf,
        interval=interval(estimate) if estimate else None,
        estimated=_doubt(row),
        why=why_none([(1.0, log_perf)]) if measured else "estimated" if row.estimate else "nothing was measured",
    )


def _doubt(row: TestSummary) -> tuple[float, float] | None:
    found = row.estimate
    return (found.low / found.value, found.high / found.value) if found and found.value else None


def score(
    summary: Summary, weights: Weights, reference: Reference | None = None, *, penalize_variance: bool = True
) -> Score:
    """The score of ``summary`` over the tests that have a weight, in classic units or relative to ``reference``."""
    effective = spread_unplanned(weights, summary.devices)
    rows = {row.test: row for row in scored_tests(summary, effective, penalize_variance=penalize_variance)}
    omitted = tuple(label for label in effective if label in summary.omitted and label not in rows)
    expected = [label for label in dict.fromkeys([*effective, *summary.tests]) if label not in omitted]
    missing = tuple(label for label in expected if _is_missing(summary.tests.get(label)))
    counted = [label for label in effective if label in rows and not rows[label].why_not]
    unlike = [label for label in effective if label in rows and rows[label].of_unknown_items]
    others = other_items(summary, reference, counted)
    counted = [label for label in counted if label not in others]
    reasons = _reasons(summary, missing, omitted, len(effective))
    reasons += tuple(f"{label} has {rows[label].why_not}" for label in unlike)
    reasons += tuple(f"{label} counts {why}" for label, why in others.items())
    status: Literal["complete", "partial", "invalid"] = "complete"
    if missing or not counted:
        status = "invalid"
    elif omitted or reasons:
        status = "partial"
    value = None
    if status != "invalid":
        value = mean_over(rows, counted, effective) / level(reference, counted, effective, penalize=penalize_variance)
    parts = log_parts(rows, counted, effective)
    estimate = combine(parts) if value else None
    return Score(
        status=status,
        unit=score_unit(reference),
        per_device=value,
        per_node=None if value is None else value * summary.devices,
        devices=summary.devices,
        tests=len(counted),
        of=len(effective),
        missing=missing,
        expected=len(expected),
        omitted=omitted,
        reasons=reasons,
        interval=interval(estimate, value) if estimate else None,
        why="" if estimate else "there is no score above 0" if not value else why_none(parts),
        repeats_needed=repeats_needed(parts) if estimate else None,
    )


def level(reference: Reference | None, labels: Sequence[str], weights: Weights, *, penalize: bool) -> float:
    """The reference's own score over ``labels``, in classic units, which a score relative to it is divided by.

    The mean of the ratios is the ratio of the means, since they are geometric. 1 without a reference.
    """
    if reference is None:
        return 1.0
    rows = {row.test: row for row in scored_tests(reference.summary, weights, penalize_variance=penalize)}
    return mean_over(rows, labels, weights)


def other_items(summary: Summary, reference: Reference | None, labels: Sequence[str]) -> dict[str, str]:
    """The ``labels`` whose items are not those of the reference, and both."""
    if reference is None:
        return {}
    units = {label: (summary.tests[label].unit, reference.summary.tests[label].unit) for label in labels}
    return {label: f"{ours}, the reference {theirs}" for label, (ours, theirs) in units.items() if ours != theirs}


def _is_missing(row: TestSummary | None) -> bool:
    """Whether a row is absent although it has a weight, or lacks some of its planned records."""
    return row is None or row.missing > 0 or row.pending > 0 or (row.n == 0 and row.estimate is None)


def _reasons(summary: Summary, missing: tuple[str, ...], omitted: tuple[str, ...], of: int) -> tuple[str, ...]:
    reasons = []
    if missing:
        reasons.append(f"{len(missing)} tests without all their records")
    if omitted:
        reasons.append(f"{len(omitted)} of {of} weighted tests were not selected")
    if not summary.has_plan and summary.units == "true":
        reasons.append("without run.json it is not known what was planned")
    return tuple(reasons)


def mean_over(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> float:
    """The weighted geometric mean in classic units over ``labels``; NaN if there are none."""
    return weighted_geometric_mean([rows[label].classic for label in labels], [weights[label] for label in labels])


def log_ratio(run: ScoredRows, base: ScoredRows, labels: Sequence[str], weights: Weights) -> list[WeightedStat]:
    """The terms of the logarithm of the ratio of two scores over the same tests."""
    theirs = [(-coefficient, stat) for coefficient, stat in log_parts(base, labels, weights)]
    return [*log_parts(run, labels, weights), *theirs]


def log_parts(rows: ScoredRows, labels: Sequence[str], weights: Weights) -> list[WeightedStat]:
    """The terms that sum to the logarithm of the weighted geometric mean of the repeats, in classic units.

    If all tests have the same repeats, there is one part: each repeat has its own weighted geometric mean, whose spread
    includes what a repeat's tests have in common (the node's temperature, a neighbour). Otherwise there is a part for
    each test, taken as independent.
    """
    total = math.fsum(weights[label] for label in labels)
    parts: list[WeightedStat] = [(weights[label] / total, rows[label].classic_log) for label in labels]
    repeats = {tuple(sorted(rows[label].repeats)) for label in labels}
    if len(repeats) != 1 or any(stat is None for _, stat in parts):
        return parts
    whole = session_stat(
        {
            repeat: weighted_geometric_mean(
                [rows[label].repeats[repeat] * (rows[label].classic_factor or 0.0) for label in labels],
                [weights[label] for label in labels],
            )
            for repeat in repeats.pop()
        },
        rows[labels[0]].sessions,
    )
    return parts if whole is None else [(1.0, whole)]
