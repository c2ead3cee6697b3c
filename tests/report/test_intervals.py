"""Intervals and verdicts against numbers from tables and against scipy's own t tests."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from scipy import stats as scipy_stats

from milabench_ng.analysis.scoring.score import log_parts
from milabench_ng.analysis.scoring.scored import ScoredTest
from milabench_ng.analysis.statistics.effects import effect, effects, holm, p_value
from milabench_ng.analysis.statistics.intervals import (
    Estimate,
    LogStat,
    combine,
    interval,
    log_stat,
    repeats_needed,
    t_quantile,
    why_none,
)
from milabench_ng.analysis.statistics.jackknife import jackknife
from milabench_ng.model.stats import geometric_mean

RUN = [104.0, 103.1, 105.2, 103.7, 104.4]
BASE = [100.0, 100.9, 99.2, 100.3, 99.8, 100.1]


def test_the_logarithms_of_the_repeats() -> None:
    found = log_stat([1.0, math.e**2, math.e**4])
    assert found == LogStat(3, pytest.approx(2.0, rel=1e-12), pytest.approx(2.0, rel=1e-12))
    assert log_stat([math.e]) == LogStat(1, 1.0, None)
    assert log_stat([]) is None
    assert log_stat([1.0, 0.0]) is None


def test_the_interval_of_one_rate_is_that_of_t() -> None:
    # logs 1 to 5: mean 3, standard error sqrt(2.5 / 5), t(0.975, 4) = 2.7764451051977987
    estimate = combine([(1.0, log_stat([math.exp(log) for log in (1, 2, 3, 4, 5)]))])
    assert (estimate.mean, estimate.variance, estimate.df, estimate.n) == pytest.approx((3.0, 0.5, 4.0, 5), rel=1e-12)
    found = interval(estimate)
    half = 2.7764451051977987 * math.sqrt(0.5)
    assert (found.value, found.low, found.high) == pytest.approx(
        (math.exp(3), math.exp(3 - half), math.exp(3 + half)), rel=1e-12
    )
    assert found.inverse.high == pytest.approx(1 / found.low, rel=1e-12)
    assert found.scaled(8.0).low == pytest.approx(8 * found.low, rel=1e-12)


def test_a_ratio_is_welchs_t_test_on_logarithms() -> None:
    estimate = combine([(1.0, log_stat(RUN)), (-1.0, log_stat(BASE))])
    expected = scipy_stats.ttest_ind(np.log(RUN), np.log(BASE), equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert estimate.df == pytest.approx(expected.df, rel=1e-12)
    assert p_value(estimate) == pytest.approx(expected.pvalue, rel=1e-9)
    found = effect([(1.0, log_stat(RUN)), (-1.0, log_stat(BASE))])
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)
    assert found.ratio.n == 5
    assert found.verdict == "better"


def test_a_weighted_sum_has_satterthwaites_degrees_of_freedom() -> None:
    parts = [(0.75, LogStat(5, 1.0, 0.02)), (0.25, LogStat(3, 2.0, 0.06))]
    found = combine(parts)
    first, second = 0.75**2 * 0.0004 / 5, 0.25**2 * 0.0036 / 3
    assert found.mean == pytest.approx(1.25, rel=1e-12)
    assert found.variance == pytest.approx(first + second, rel=1e-12)
    assert found.df == pytest.approx((first + second) ** 2 / (first**2 / 4 + second**2 / 2), rel=1e-12)
    assert found.n == 3


def test_without_repeats_there_is_no_interval_and_a_reason() -> None:
    one, two, absent = LogStat(1, 1.0, None), LogStat(2, 1.0, 0.1), None
    for parts, why in (
        ([(1.0, one)], "one repeat"),
        ([(1.0, two), (-1.0, one)], "one repeat"),
        ([(1.0, two), (-1.0, absent)], "no repeats are recorded"),
        ([], "nothing was measured"),
    ):
        assert combine(parts) is None
        assert why_none(parts) == why
        found = effect(parts)
        assert (found.ratio, found.verdict, found.why) == (None, "not judged", why)


def test_under_five_repeats_nothing_is_ranked() -> None:
    far = effect([(1.0, LogStat(4, 1.0, 0.001)), (-1.0, LogStat(20, 0.0, 0.001))])
    assert (far.ratio, far.verdict, far.why) == (None, "not judged", "fewer than 5 repeats")
    assert effect([(1.0, LogStat(5, 1.0, 0.001)), (-1.0, LogStat(20, 0.0, 0.001))]).verdict == "better"


@pytest.mark.parametrize(
    ("log_ratio", "std", "verdict"),
    [
        (0.0, 0.002, "equivalent"),
        (0.01, 0.002, "equivalent"),  # different beyond doubt, and it does not matter
        (-0.01, 0.002, "equivalent"),
        (0.03, 0.002, "better"),
        (-0.03, 0.002, "worse"),
        (0.018, 0.01, "inconclusive"),  # may or may not matter
        (0.03, 0.05, "inconclusive"),
        (0.0, 0.05, "inconclusive"),
        (0.0, 0.0, "equivalent"),
        (0.05, 0.0, "better"),
    ],
)
def test_verdicts(log_ratio: float, std: float, verdict: str) -> None:
    parts = [(1.0, LogStat(10, log_ratio, std)), (-1.0, LogStat(10, 0.0, std))]
    assert effect(parts).verdict == verdict


def test_the_margin_decides_what_is_equivalent() -> None:
    parts = [(1.0, LogStat(10, 0.03, 0.002)), (-1.0, LogStat(10, 0.0, 0.002))]
    assert [effect(parts, margin).verdict for margin in (0.02, 0.05)] == ["better", "equivalent"]
    # a verdict takes a 95 % interval without an edge. Half of it is t(0.975, 18) * sqrt(2 / 10) * 0.002
    half = 2.10092204024096 * math.sqrt(0.2) * 0.002
    inside, outside = math.expm1(0.03 + half), math.expm1(0.03 - half)
    assert [effect(parts, inside + shift).verdict for shift in (-1e-9, 1e-9)] == ["inconclusive", "equivalent"]
    assert [effect(parts, outside + shift).verdict for shift in (-1e-9, 1e-9)] == ["better", "inconclusive"]


def test_the_p_value_is_that_of_a_true_ratio_beyond_the_nearer_edge() -> None:
    estimate = combine([(1.0, log_stat(RUN)), (-1.0, log_stat(BASE))])  # 4.0 %
    assert estimate is not None
    for margin, beyond in ((0.02, "greater"), (0.06, "less"), (0.0, "greater")):
        shifted = np.log(RUN) - math.log1p(margin)
        expected = scipy_stats.ttest_ind(shifted, np.log(BASE), equal_var=False, alternative=beyond)
        assert p_value(estimate, margin) == pytest.approx(2 * expected.pvalue, rel=1e-9)
    mirrored = combine([(-1.0, log_stat(RUN)), (1.0, log_stat(BASE))])
    assert mirrored is not None
    assert p_value(mirrored, 0.02) == pytest.approx(p_value(estimate, 0.02), rel=1e-12)


def test_a_p_value_by_hand() -> None:
    # 2 degrees of freedom, where t has the tail (1 - t / sqrt(2 + t^2)) / 2; an edge at log 0.04, estimate 0.10
    known = Estimate(mean=0.10, variance=0.0009, df=2.0, n=5)
    assert p_value(known, math.expm1(0.04)) == pytest.approx(1 - 2 / math.sqrt(6), rel=1e-12)  # t = 2
    assert p_value(known, math.expm1(0.16)) == pytest.approx(1 - 2 / math.sqrt(6), rel=1e-12)
    assert p_value(known, math.expm1(0.10)) == pytest.approx(1.0, rel=1e-12)


def test_holm() -> None:
    # 0.01 * 4, 0.02 * 3, 0.03 * 2 (not below the one before), 0.5 * 1
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06], rel=1e-12)
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_with_weights() -> None:
    # 0.01 has three quarters of the error, 0.02 a quarter: 0.01 / 0.75, then 0.02 / 0.25 of what is left.
    assert holm([0.02, 0.01], [1.0, 3.0]) == pytest.approx([0.02, 0.01 / 0.75])
    assert holm([0.02, 0.01], [9.0, 1.0]) == pytest.approx([0.02 / 0.9, 0.02 / 0.9]), "never below a smaller one's"


def test_several_tests_are_adjusted() -> None:
    near = [(1.0, LogStat(10, 0.05, 0.03)), (-1.0, LogStat(10, 0.0, 0.03))]  # p = 0.038
    alone, among = effect(near), effects([near, near])[0]
    assert (alone.verdict, among.verdict) == ("better", "inconclusive")
    assert alone.p is not None
    assert among.p == pytest.approx(2 * alone.p, rel=1e-12)


def test_how_many_repeats_one_percent_takes() -> None:
    parts = [(1.0, LogStat(3, 0.0, 0.01))]
    found = repeats_needed(parts)
    assert found is not None
    # the variance of the next run is at most so much larger in four of five pairs of runs
    larger = [scipy_stats.f.ppf(0.80, n - 1, 2) for n in (found - 1, found)]
    widths = [
        t_quantile(0.975, n - 1) * 0.01 * math.sqrt(times / n)
        for n, times in zip((found - 1, found), larger, strict=True)
    ]
    assert widths[1] <= math.log(1.01) < widths[0]
    assert found == 20
    assert repeats_needed([(1.0, LogStat(3, 0.0, 0.0))]) == 2
    assert repeats_needed([(1.0, LogStat(3, 0.0, 1.0))]) is None
    assert repeats_needed([(1.0, LogStat(1, 0.0, None))]) is None


def test_nothing_that_varied() -> None:
    estimate = combine([(1.0, LogStat(5, 0.1, 0.0))])
    assert estimate == Estimate(mean=0.1, variance=0.0, df=math.inf, n=5)
    assert estimate is not None
    assert interval(estimate).low == interval(estimate).high == math.exp(0.1)


def scored(test: str, repeats: dict[str, float], factor: float = 1.0) -> ScoredTest:
    return ScoredTest(
        test=test,
        unit="images",
        weight=1.0,
        n=3,
        fail=0,
        perf=1.0,
        std_pct=0.0,
        perf_adj=1.0,
        classic_factor=factor,
        repeats=repeats,
        log_perf=log_stat(list(repeats.values())),
        throughput=jackknife({repeat: factor * rate for repeat, rate in repeats.items()}, geometric_mean, {}),
    )


def test_a_repeat_has_a_score_of_its_own() -> None:
    rows = {"a": scored("a", {"0": 1.0, "1": 8.0}), "b": scored("b", {"1": 4.0, "0": 2.0}, factor=2.0)}
    ((coefficient, stat),) = log_parts(rows, ["a", "b"], {"a": 1.0, "b": 3.0})
    logs = [3 * math.log(4) / 4, (math.log(8) + 3 * math.log(8)) / 4]  # (1 * 4^3)^(1/4), (8 * 8^3)^(1/4)
    assert (coefficient, stat.n) == (1.0, 2)
    assert (stat.mean, stat.std) == pytest.approx((sum(logs) / 2, (logs[1] - logs[0]) / math.sqrt(2)), rel=1e-12)


def test_a_test_that_lacks_a_repeat_has_its_own_mean_there() -> None:
    rows = {"a": scored("a", {"0": 1.0, "1": 8.0}), "b": scored("b", {"0": 2.0, "2": 4.0}, factor=2.0)}
    ((_, stat),) = log_parts(rows, ["a", "b"], {"a": 1.0, "b": 3.0})
    a, b = [0.0, math.log(8)], [math.log(4), math.log(8)]
    middle_a, middle_b = sum(a) / 2, sum(b) / 2
    # of three repeats and two measurements: 3 mean - 2 (the other one) where there is one, else the mean
    by_repeat = [
        (3 * middle_a - 2 * a[1]) / 4 + 3 * (3 * middle_b - 2 * b[1]) / 4,
        (3 * middle_a - 2 * a[0]) / 4 + 3 * middle_b / 4,
        middle_a / 4 + 3 * (3 * middle_b - 2 * b[0]) / 4,
    ]
    assert stat.n == 3
    assert stat.mean == pytest.approx((middle_a + 3 * middle_b) / 4, rel=1e-12)
    assert stat.std == pytest.approx(np.std(by_repeat, ddof=1), rel=1e-12)


def test_a_test_whose_repeats_are_not_recorded_is_a_part_of_its_own() -> None:
    known, stored = scored("a", {"0": 1.0, "1": 8.0}), scored("b", {"0": 2.0, "2": 4.0})
    rows = {"a": known, "b": msgspec.structs.replace(stored, repeats={}, throughput=None)}
    (_, whole), (coefficient, alone) = log_parts(rows, ["a", "b"], {"a": 1.0, "b": 3.0})
    assert whole.mean == pytest.approx(math.log(8) / 2 / 4, rel=1e-12)
    assert (coefficient, alone) == (0.75, stored.log_perf)


def test_sessions_of_unequal_size_weigh_by_their_repeats() -> None:
    """For a geometric mean the pseudo-values are the sessions'."""
    rates = {str(number): 100.0 for number in range(8)} | {"8": 110.0, "9": 110.0}
    sessions = {str(number): 1 for number in range(8)} | {"8": 2, "9": 3}
    found = jackknife(rates, geometric_mean, sessions)
    assert [math.exp(one) for one in found.pseudo_values(["1", "2", "3"])] == pytest.approx([100.0, 110.0, 110.0])
    plain = jackknife(rates, geometric_mean, {})
    assert [math.exp(one) for one in plain.pseudo_values(list(rates))] == pytest.approx(list(rates.values()))
