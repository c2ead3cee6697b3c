"""The rows of a score and of a comparison. Pure.

A score is made of ``perf_adj = perf * (1 - std%) * (1 - fail/n)``, at least 0, as in 2020. A comparison is made of
throughputs, which are charged for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.analysis.scoring.weights import Weights
from milabench_ng.analysis.statistics.intervals import Interval, LogStat, combine, interval, why_none
from milabench_ng.analysis.statistics.jackknife import Jackknife, jackknife
from milabench_ng.analysis.summary.repeats import between_devices, run_to_run
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.model.stats import geometric_mean, mean, population_std

ONE_AFTER_ANOTHER = "the repeats of a test ran one after another (--order file)"
"""Why there is no interval: what wanders on the node is the same in all of them."""


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
    charged: Jackknife | None = None
    """The logarithm of ``perf_adj`` in classic units over the repeats, without one at a time; None for one repeat."""
    throughput: Jackknife | None = None
    """The same of the geometric mean of the repeats, without penalties."""
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
    estimated: bool = False
    """Whether the rate is an estimate."""

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
    def log_throughput(self) -> float | None:
        """The logarithm of the rate in classic units: the geometric mean of the repeats, as far as they are known."""
        if self.classic_log is not None:
            return self.classic_log.mean
        return math.log(self.perf * self.classic_factor) if self.perf and self.classic_factor else None

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
    def why_no_rate(self) -> str:
        """Why it has no throughput although it has a score; empty if it has one."""
        return "" if self.log_throughput is not None else "no launch that did not fail" if self.n else "no rate"

    @property
    def why_not(self) -> str:
        """Why it cannot be in a score; empty if it can."""
        if self.perf_adj is None:
            return "no rate"
        return "no record of what its items are" if self.of_unknown_items else ""


ScoredRows = Mapping[str, ScoredTest]
"""By test."""


def scored_tests(summary: Summary, weights: Weights | None, *, penalize_variance: bool = True) -> ScoredRows:
    """Every row of the summary with its ``perf_adj``. ``weights`` are the effective ones."""
    return {
        label: _scored(label, row, summary, (weights or {}).get(label), penalize_variance)
        for label, row in summary.tests.items()
    }


def perf_adj(perf: float, std: float, n: int, failures: int, *, penalize_variance: bool) -> float:
    """``perf`` minus the penalties for spread and failures, at least 0."""
    steady = max(0.0, perf - std) if penalize_variance else perf
    return steady * (1 - failures / n)


def _scored(
    label: str, row: TestSummary, summary: Summary, weight: float | None, penalize_variance: bool
) -> ScoredTest:
    """Score a row in true items if their definition is known, else in those of 2020."""
    classic = summary.units == "classic"
    factor = row.work.classic_factor
    scale = 1 / factor if classic and factor else 1.0
    factor = (factor or 1.0) if classic else factor
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
    serial = summary.one_after_another and len(row.repeats) > 1
    log_perf = row.log_perf.shifted(scale) if row.log_perf and not serial else None
    to_classic = scale * (factor or 1.0)
    rates = {} if serial else {repeat: to_classic * rate for repeat, rate in row.repeats.items()}
    charged = _charged(row, rates, to_classic, penalize_variance) if factor else None
    estimate = combine([(1.0, log_perf)])
    return ScoredTest(
        test=label,
        unit=row.work.unit,
        weight=weight,
        n=row.n,
        fail=row.failures,
        perf=None if perf is None else scale * perf,
        std_pct=100 * measured.std / measured.mean if measured and measured.mean else None,
        perf_adj=adjusted,
        charged=charged,
        throughput=jackknife(rates, geometric_mean, row.sessions) if factor else None,
        classic_factor=factor,
        bound=row.work.bound,
        between_devices_pct=between_devices(row),
        run_to_run_pct=run_to_run(row),
        repeats={repeat: scale * rate for repeat, rate in row.repeats.items()},
        sessions=row.sessions,
        log_perf=log_perf,
        interval=interval(estimate) if estimate else None,
        estimated=row.estimate is not None,
        why=_why_no_interval(row, log_perf, serial=serial),
    )


def _charged(row: TestSummary, rates: Mapping[str, float], scale: float, penalize_variance: bool) -> Jackknife | None:
    """The logarithm of ``perf_adj`` over the repeats, whose ``rates`` are the row's times ``scale``.

    The variance of the launches within repeats is the same whichever repeat is left out.
    """
    if row.train is None:
        return None
    within = max(0.0, (scale * row.train.std) ** 2 - population_std(list(rates.values())) ** 2)

    def adjusted(some: Sequence[float]) -> float:
        std = math.sqrt(within + population_std(some) ** 2)
        return perf_adj(mean(some), std, row.n, row.failures, penalize_variance=penalize_variance)

    return jackknife(rates, adjusted, row.sessions)


def _why_no_interval(row: TestSummary, log_perf: LogStat | None, *, serial: bool) -> str:
    if serial:
        return ONE_AFTER_ANOTHER
    if row.train is not None:
        return why_none([(1.0, log_perf)])
    return "estimated" if row.estimate else "nothing was measured"
