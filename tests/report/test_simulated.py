"""What intervals and verdicts promise, on 20,000 made-up runs whose truth is known. Seeded: the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import simulate

from milabench_ng.report.statistics.effects import effects, holm, p_value
from milabench_ng.report.statistics.intervals import combine, log_stat


def test_the_simulation_computes_what_the_report_computes() -> None:
    rng = np.random.default_rng(1)
    run, base = simulate.rates(rng, 4, 5, trials=3), simulate.rates(rng, 4, 7, trials=3)
    weights = simulate.weights(4)
    found = simulate.sums(run, base, weights)
    for trial in range(3):
        parts = [
            (float(sign * weight), log_stat(side[trial, test].tolist()))
            for sign, side in ((1, run), (-1, base))
            for test, weight in enumerate(weights)
        ]
        expected = combine(parts)
        assert expected is not None
        assert found.estimate[trial] == pytest.approx(expected.mean, rel=1e-9)
        assert found.error[trial] ** 2 == pytest.approx(expected.variance, rel=1e-9)
        assert found.df[trial] == pytest.approx(expected.df, rel=1e-9)
        assert found.p[trial] == pytest.approx(p_value(expected, 0.02), rel=1e-9)
    p = np.array([[0.02, 0.9], [0.5, 0.8], [0.01, 0.7]])
    assert simulate.holm(p)[:, 0].tolist() == pytest.approx(holm([0.02, 0.5, 0.01]))


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize(("tests", "sides"), [(1, 2), (12, 1), (12, 2), (18, 2)])
def test_nominal_95_percent_cover_94_to_96_and_a_half(tests: int, sides: int, n: int) -> None:
    assert 0.94 <= simulate.coverage(tests, n, sides) <= 0.965


@pytest.mark.parametrize("n", [5, 10, 20])
def test_also_where_the_tests_of_a_repeat_share_their_luck(n: int) -> None:
    assert 0.94 <= simulate.coverage(12, n, 2, shared=0.005) <= 0.965


@pytest.mark.parametrize("n", [5, 10, 20])
def test_tests_without_common_repeats_are_parts_of_their_own(n: int) -> None:
    assert 0.94 <= simulate.coverage(12, n, 2, aligned=False) <= 0.965


RATIOS = (1 / 1.015, 1.0, 1.005, 1.01, 1.015, 1.02, 1.03, 1.05)
CHANCE = 0.0065
"""Three standard errors of a share of 5 % in 10,000 trials."""


def test_the_report_itself_calls_no_test_different_whose_true_ratio_is_within_the_margin() -> None:
    """At 20 repeats it did in 74 % of such comparisons when the difference was tested against 0."""
    rng = np.random.default_rng(simulate.SEED)
    run, base = simulate.rates(rng, 12, 20, float(np.log(1.015)), trials=200), simulate.rates(rng, 12, 20, trials=200)
    called = 0
    for ours, theirs in zip(run, base, strict=True):
        sides = zip(ours, theirs, strict=True)
        found = effects([[(1.0, log_stat(a.tolist())), (-1.0, log_stat(b.tolist()))] for a, b in sides])
        called += any(each.verdict in ("better", "worse") for each in found)
    assert called <= 0.05 * 200


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("ratio", RATIOS)
def test_false_verdicts_stay_below_5_percent_for_every_true_ratio(ratio: float, n: int) -> None:
    truth = simulate.MARGIN if ratio == 1.02 else float(np.log(ratio))
    found = simulate.verdicts(12, n, truth, trials=10_000)
    assert found["false"] <= 0.05 + CHANCE
    assert found["any test false"] <= 0.05 + CHANCE
    assert found["any test falsely equivalent"] <= 0.025 + CHANCE


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("shared", [0.0, 0.005])
@pytest.mark.parametrize(
    "ratios",
    [
        (1.02, 1.0, 1.05, 1 / 1.02),
        (1.02, 1.02, 1.10, 1.10),  # those that are easy to call leave more room to the others
        (1.015, 1.025, 1.0, 1.02),
    ],
)
def test_also_where_true_ratios_differ_and_where_tests_share_their_luck(
    ratios: tuple[float, ...], shared: float, n: int
) -> None:
    edges = {1.02: simulate.MARGIN, 1 / 1.02: -simulate.MARGIN}
    truths = np.tile([edges.get(ratio, float(np.log(ratio))) for ratio in ratios], 3)
    assert simulate.verdicts(12, n, truths, shared, trials=10_000)["any test false"] <= 0.05 + CHANCE


def test_at_the_edge_every_verdict_is_false_and_one_in_twenty_is_given() -> None:
    found = simulate.verdicts(12, 10, simulate.MARGIN)
    assert found["different"] == pytest.approx(0.025, abs=0.0035)
    assert found["equivalent"] == pytest.approx(0.025, abs=0.0035)
    assert found["any test false without Holm"] > 0.35  # what Holm is there for


def test_what_matters_and_what_does_not_is_found() -> None:
    same, apart = simulate.verdicts(12, 5, 0.0), simulate.verdicts(12, 5, float(np.log(1.05)))
    assert (same["different"], same["equivalent"]) == pytest.approx((0.0, 1.0), abs=0.05)
    assert apart["different"] >= 0.99
    assert apart["a test different"] >= 0.2


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_slow_devices_are_called_and_healthy_ones_are_not(devices: int) -> None:
    called, wrong = simulate.slow_devices(devices, spread=0.01, slow=0.05, trials=1000)
    assert called >= 0.8
    assert wrong <= 0.03
