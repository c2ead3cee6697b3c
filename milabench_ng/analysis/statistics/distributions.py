"""Tails and quantiles of the t, F and beta distributions, which all follow from one incomplete beta function. Pure.

They agree with scipy to ten digits, up to 10,000 degrees of freedom. scipy itself takes longer to import than all else
that a report needs. Beyond a million degrees of freedom, and far from 0, Student's t is a normal distribution with a
small correction (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

_LARGE_DF = 1e6
_FAR = 30.0
"""How far from 0 the terms of the noncentral t can be computed."""
_FARTHEST_T = 1e100
"""Larger statistics have no square."""
_EPSILON = 1e-16
_TINY = 1e-300
_MOST_STEPS = 100_000
_FARTHEST = 700.0
"""The largest logit whose exponential is a number."""


def beta_quantile(probability: float, a: float, b: float) -> float:
    """The value below which a share ``probability`` of the beta distribution lies."""
    return _expit(_beta_logit(probability, a, b))


def f_quantile(probability: float, numerator_df: float, denominator_df: float) -> float:
    """The quantile of the ratio of two variances, estimated with these degrees of freedom."""
    upper, lower = min(numerator_df, _LARGE_DF), min(denominator_df, _LARGE_DF)
    return lower / upper * math.exp(-_beta_logit(1 - probability, lower / 2, upper / 2))


def t_quantile(probability: float, df: float) -> float:
    """The quantile of Student's t distribution; of the normal distribution for infinite ``df``."""
    if probability <= 0.5:
        return 0.0 if probability == 0.5 else -t_quantile(1 - probability, df)
    if df > _LARGE_DF:
        z = _normal_quantile(probability)
        return z + (z**3 + z) / (4 * df)
    return math.sqrt(df * math.exp(-_beta_logit(2 * (1 - probability), df / 2, 0.5)))


def t_tail(statistic: float, df: float, away: float = 0.0) -> float:
    """The probability of Student's t distribution above ``statistic``; noncentral if its mean is ``away`` from 0."""
    statistic = max(-_FARTHEST_T, min(_FARTHEST_T, statistic))
    if df > _LARGE_DF or abs(away) >= _FAR:
        scale = math.sqrt(1 + statistic**2 / (2 * df))
        return _normal_tail((statistic * (1 - 1 / (4 * df)) - away) / scale)
    if statistic < 0:
        return 1 - t_tail(-statistic, df, -away)
    square = statistic**2
    within, beyond = square / (df + square), df / (df + square)
    if not away:
        return beta_below(beyond, within, df / 2, 0.5) / 2
    return 1 - _normal_tail(away) - _above_zero(within, beyond, df, away)


def _above_zero(within: float, beyond: float, df: float, away: float) -> float:
    """The share of the noncentral t distribution from 0 to the statistic (Lenth, Applied Statistics 38, 1989)."""
    rate = away**2 / 2
    even, odd = math.exp(-rate) / 2, away * math.exp(-rate) / math.sqrt(2 * math.pi)
    halves, wholes = _shares(within, beyond, 0.5, df / 2), _shares(within, beyond, 1.0, df / 2)
    total = 0.0
    for step in count():
        total += even * next(halves) + odd * next(wholes)
        if step > rate and even + abs(odd) < _EPSILON:
            break
        even *= rate / (step + 1)
        odd *= rate / (step + 1.5)
    return total


def _shares(x: float, y: float, a: float, b: float) -> Iterator[float]:
    """The incomplete beta function of ``a``, ``a + 1``, ``a + 2`` and so on."""
    share, term = beta_below(x, y, a, b), math.exp(_log_density(x, y, a, b)) / a
    while True:
        yield share
        share -= term
        term *= x * (a + b) / (a + 1)
        a += 1


def _normal_tail(statistic: float) -> float:
    return math.erfc(statistic / math.sqrt(2)) / 2


def _normal_quantile(probability: float) -> float:
    """By Newton's method on the logarithm of the tail, which is concave."""
    z = 0.0
    for _ in range(60):
        tail = _normal_tail(z)
        step = (math.log(tail) - math.log(1 - probability)) * tail * math.sqrt(2 * math.pi) * math.exp(z * z / 2)
        z += step
        if abs(step) < 1e-15 * max(1.0, z):
            break
    return z


def _beta_logit(probability: float, a: float, b: float) -> float:
    """The logit of the beta distribution's quantile, by Newton's method within bounds that close in."""
    low, high = -_FARTHEST, _FARTHEST
    at = math.log(a / b)
    for _ in range(200):
        x, y = _expit(at), _expit(-at)
        off = beta_below(x, y, a, b) - probability
        low, high = (low, at) if off > 0 else (at, high)
        slope = math.exp(_log_density(x, y, a, b))
        after = at - off / slope if slope > _TINY else math.nan
        after = after if low < after < high else (low + high) / 2
        if abs(after - at) <= 1e-15 * max(1.0, abs(at)):
            return after
        at = after
    return at


def _expit(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -_FARTHEST else 0.0


def _log_density(x: float, y: float, a: float, b: float) -> float:
    """The logarithm of ``x^a y^b / B(a, b)``."""
    if not x or not y:
        return -math.inf
    return a * math.log(x) + b * math.log(y) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)


def beta_below(x: float, y: float, a: float, b: float) -> float:
    """The regularized incomplete beta function of ``x``, with ``y = 1 - x`` given as exactly (DLMF 8.17.22)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_below(y, x, b, a)
    return math.exp(_log_density(x, y, a, b)) / a / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction, by the method of Lentz (Applied Optics 15, 1976)."""
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(1, _MOST_STEPS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / (1 + term * denominator or _TINY)
        numerator = 1 + term / numerator or _TINY
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < _EPSILON:
            break
    return value
