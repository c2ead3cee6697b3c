"""What intervals and verdicts promise, on 20,000 made-up runs whose truth is known. Seeded: the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import simulate

from milabench_ng.report.intervals import combine, log_stat
from milabench_ng.report.verdict import holm, p_value


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
        assert found.p[trial] == pytest.approx(p_value(expected), rel=1e-9)
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


def test_two_runs_of_one_node_are_never_called_different() -> None:
    found = simulate.verdicts(12, 5, 0.0)
    assert found["different"] <= 0.001
    assert found["equivalent"] >= 0.95
    assert found["any test different"] <= 0.05  # Holm
    assert found["any p below 5 %, not adjusted"] > 0.3  # what Holm is there for


def test_what_is_just_not_equivalent_is_called_so_in_5_percent() -> None:
    found = simulate.verdicts(12, 10, float(simulate.MARGIN))
    assert found["equivalent"] <= 0.055
    assert found["a test equivalent"] <= 0.055


def test_five_percent_are_found() -> None:
    found = simulate.verdicts(12, 5, float(np.log(1.05)))
    assert found["different"] >= 0.99
    assert found["a test different"] >= 0.6


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_slow_devices_are_called_and_healthy_ones_are_not(devices: int) -> None:
    called, wrong = simulate.slow_devices(devices, spread=0.01, slow=0.05, trials=1000)
    assert called >= 0.8
    assert wrong <= 0.03
