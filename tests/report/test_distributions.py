"""Tails and quantiles against scipy's."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from scipy import special

from milabench_ng.analysis.statistics.distributions import beta_quantile, f_quantile, t_quantile, t_tail


@pytest.fixture
def draw() -> random.Random:
    return random.Random(20261125)


def dfs(draw: random.Random, most: float = 1e4) -> Iterator[float]:
    """Degrees of freedom from 1 to ``most``, even on a logarithmic scale."""
    for _ in range(2000):
        yield math.exp(draw.uniform(0, math.log(most)))


def test_student(draw: random.Random) -> None:
    for df in dfs(draw):
        probability, statistic = 1 - 10 ** draw.uniform(-6, 0), draw.uniform(-12, 12)
        expected = float(special.stdtrit(df, probability))
        assert t_quantile(probability, df) == pytest.approx(expected, rel=1e-10, abs=1e-10)
        assert t_tail(statistic, df) == pytest.approx(float(special.stdtr(df, -statistic)), rel=1e-10)


def test_the_normal_distribution_at_the_end() -> None:
    for df in (1e5, 0.99e6, 1.01e6, 1e9, math.inf):
        for probability in (0.001, 0.5, 0.6, 0.975, 0.9999):
            expected = float(special.ndtri(probability) if math.isinf(df) else special.stdtrit(df, probability))
            assert t_quantile(probability, df) == pytest.approx(expected, rel=1e-8, abs=1e-12)
        expected = float(special.ndtr(-2.0) if math.isinf(df) else special.stdtr(df, -2.0))
        assert t_tail(2.0, df) == pytest.approx(expected, rel=1e-8)


def test_noncentral_student(draw: random.Random) -> None:
    for df in dfs(draw, 2000.0):
        away = draw.uniform(-29, 29)
        statistic = away + draw.uniform(-6, 6)
        expected = 1 - float(special.nctdtr(df, away, statistic))
        assert math.isnan(expected) or t_tail(statistic, df, away) == pytest.approx(expected, abs=1e-10)
    assert t_tail(25.0, 8.0, 31.0) == pytest.approx(t_tail(25.0, 8.0, 29.999), abs=0.1), "beyond, almost the same"


def test_ratios_of_variances_and_shares(draw: random.Random) -> None:
    for df in dfs(draw):
        other, probability = math.exp(draw.uniform(0, 9)), draw.uniform(0.01, 0.99)
        expected = float(special.fdtri(df, other, probability))
        assert f_quantile(probability, df, other) == pytest.approx(expected, rel=1e-9)
        most = draw.randint(1, 2000)
        some = draw.randint(1, most)
        expected = float(special.betaincinv(some, most - some + 1, probability))
        assert beta_quantile(probability, some, most - some + 1) == pytest.approx(expected, rel=1e-10)


def test_absurd_arguments_have_an_answer() -> None:
    assert t_tail(1e300, 3.0) == pytest.approx(0.0)
    assert t_tail(-1e300, 3.0) == pytest.approx(1.0)
    assert t_tail(0.0, 1.0) == 0.5
    assert f_quantile(0.8, 1e12, 1e12) == pytest.approx(1.0, abs=0.01)
