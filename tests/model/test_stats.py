"""Numbers computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milabench_ng.model.stats import mean, median, population_std, robust_std, sample_std, weighted_geometric_mean

rates = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=20)


def test_mean_and_population_std() -> None:
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert mean(values) == 5.0
    assert population_std(values) == 2.0  # the sample's would be 2.14
    assert population_std([3.0]) == 0.0


def test_nothing_has_no_statistics() -> None:
    assert math.isnan(mean([]))
    assert math.isnan(population_std([]))
    assert math.isnan(weighted_geometric_mean([], []))
    assert math.isnan(weighted_geometric_mean([5.0], [0.0]))


def test_weighted_geometric_mean() -> None:
    assert weighted_geometric_mean([2.0, 8.0], [1.0, 1.0]) == pytest.approx(4.0)
    assert weighted_geometric_mean([2.0, 16.0], [2.0, 1.0]) == pytest.approx(4.0)  # (2 * 2 * 16) ** (1/3)
    assert weighted_geometric_mean([100.0, 0.0], [8.0, 4.0]) == 0.0
    assert weighted_geometric_mean([100.0, 0.0], [8.0, 0.0]) == pytest.approx(100.0)
    with pytest.raises(ValueError, match="shorter"):
        weighted_geometric_mean([1.0, 2.0], [1.0])


@settings(deadline=None, derandomize=True)
@given(rates, st.floats(0.01, 100))
def test_a_machine_that_is_faster_in_everything_scores_as_much_more(values: list[float], factor: float) -> None:
    weights = [float(place + 1) for place in range(len(values))]
    faster = [value * factor for value in values]
    assert weighted_geometric_mean(faster, weights) == pytest.approx(factor * weighted_geometric_mean(values, weights))


@settings(deadline=None, derandomize=True)
@given(rates)
def test_the_mean_lies_between_and_the_spread_within(values: list[float]) -> None:
    assert min(values) * (1 - 1e-9) <= mean(values) <= max(values) * (1 + 1e-9)
    assert 0 <= population_std(values) <= max(values) - min(values) + 1e-9 * max(values)


def test_sample_std_median_and_robust_std() -> None:
    assert sample_std([1.0, 2.0, 3.0, 6.0]) == pytest.approx(math.sqrt(14 / 3), rel=1e-12)
    assert math.isnan(sample_std([1.0]))
    assert (median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0])) == (2.0, 2.5)
    assert math.isnan(median([]))
    assert robust_std([1.0, 2.0, 3.0, 4.0, 1000.0]) == pytest.approx(1.4826, rel=1e-12)
