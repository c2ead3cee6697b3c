"""Made-up rates, and the formulas of `report.statistics` once more, over many trials at a time.

``test_simulations.py`` holds both to the same numbers.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Floats = NDArray[np.float64]

RUN_CV = (0.005, 0.04)
"""Tests differ in noise: coefficients of variation from run to run, drawn evenly between these on a log scale."""
MARGIN = float(np.log1p(0.02))


class Sums(msgspec.Struct, frozen=True):
    """For every trial: the estimated log ratio, its standard error and degrees of freedom."""

    estimate: Floats
    error: Floats
    df: Floats

    def covers(self, truth: float, level: float = 0.95) -> Floats:
        """Whether the interval holds the truth."""
        half = stdtrit(self.df, (1 + level) / 2) * self.error
        return np.asarray(np.abs(self.estimate - truth) <= half)

    @property
    def p(self) -> Floats:
        """Of the verdict: the interval that just reaches the nearer edge of the margin."""
        return np.asarray(2 * stdtr(self.df, -np.abs(np.abs(self.estimate) - MARGIN) / self.error))

    def equivalent(self, p: Floats) -> Floats:
        """Whether the verdict is equivalent."""
        return np.asarray((p < 0.05) & (np.abs(self.estimate) < MARGIN))

    def different(self, p: Floats) -> Floats:
        """Whether the verdict is better or worse."""
        return np.asarray((p < 0.05) & (np.abs(self.estimate) > MARGIN))

    def false(self, p: Floats, truth: float) -> Floats:
        """Whether the verdict is false. At the edge of the margin every one is."""
        different, wrong_way = self.different(p), np.sign(self.estimate) != np.sign(truth)
        if abs(abs(truth) - MARGIN) < 1e-9:
            return np.asarray(different | self.equivalent(p))
        return np.asarray(different if abs(truth) < MARGIN else self.equivalent(p) | different & wrong_way)


def rates(
    rng: np.random.Generator,
    tests: int,
    n: int,
    trials: int,
    effect: Floats | float = 0.0,
    outliers: float = 0.0,
    shared: float = 0.0,
) -> Floats:
    """Rates of shape (trials, tests, n): log-normal about ``exp(effect)``, one for all tests or one for each.

    ``outliers``: the part of the repeats that are 10 % slower; ``shared``: the standard deviation of what all tests of
    a repeat have in common.
    """
    cv = np.exp(np.linspace(np.log(RUN_CV[0]), np.log(RUN_CV[1]), tests))[None, :, None]
    noise = cv * rng.standard_normal((trials, tests, n)) + shared * rng.standard_normal((trials, 1, n))
    truth = np.broadcast_to(effect, tests)[None, :, None]
    return np.asarray(np.exp(truth + noise) * np.where(rng.random((trials, tests, n)) < outliers, 0.9, 1.0))


def weights(tests: int) -> Floats:
    """Like those of the standard suite: 4, 8, 8, 8 ... over their sum."""
    raw = np.where(np.arange(tests) % 4 == 0, 4.0, 8.0)
    return np.asarray(raw / raw.sum())


def sums(run: Floats, base: Floats | None, coefficients: Floats) -> Sums:
    """The weighted sum over the tests (axis 1), of one side or of the difference of two."""
    estimate, variance, squares = 0.0, 0.0, 0.0
    for sign, side in ((1, run), (-1, base)):
        if side is None:
            continue
        logs = np.log(side)
        n = side.shape[2]
        terms = coefficients**2 * logs.var(axis=2, ddof=1) / n
        estimate = estimate + sign * (coefficients * logs.mean(axis=2)).sum(axis=1)
        variance = variance + terms.sum(axis=1)
        squares = squares + (terms**2 / (n - 1)).sum(axis=1)
    return Sums(np.asarray(estimate), np.sqrt(variance), np.asarray(variance**2 / squares))


def by_repeat(side: Floats, coefficients: Floats) -> Floats:
    """The tests as one: the weighted geometric mean of every repeat."""
    return np.asarray(np.exp((coefficients[:, None] * np.log(side)).sum(axis=1, keepdims=True)))


def each(run: Floats, base: Floats) -> list[Sums]:
    """Every test by itself."""
    one = np.ones(1)
    return [sums(run[:, i : i + 1], base[:, i : i + 1], one) for i in range(run.shape[1])]


def holm(p: Floats) -> Floats:
    """Adjusted over the tests, of shape (tests, trials)."""
    order = np.argsort(p, axis=0)
    steps = np.take_along_axis(p, order, axis=0) * np.arange(p.shape[0], 0, -1)[:, None]
    adjusted = np.minimum(1, np.maximum.accumulate(steps, axis=0))
    back = np.empty_like(adjusted)
    np.put_along_axis(back, order, adjusted, axis=0)
    return back
