"""Statistics: pure functions over numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; NaN if empty."""
    return math.fsum(values) / len(values) if values else math.nan


def population_std(values: Sequence[float]) -> float:
    """Population standard deviation (ddof 0), as in 2020; NaN if empty."""
    return _std(values, 0)


def sample_std(values: Sequence[float]) -> float:
    """Sample standard deviation (ddof 1); NaN for fewer than two values."""
    return _std(values, 1)


def _std(values: Sequence[float], ddof: int) -> float:
    if len(values) <= ddof:
        return math.nan
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - ddof))


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle; NaN if empty."""
    if not values:
        return math.nan
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def robust_std(values: Sequence[float]) -> float:
    """1.4826 times the median absolute deviation: the standard deviation of normal values, robust against outliers."""
    centre = median(values)
    return 1.4826 * median([abs(value - centre) for value in values])


def weighted_geometric_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """``exp(sum(w ln v) / sum(w))``; 0 if a weighted value is 0, NaN if there is no weight."""
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight > 0]
    if not pairs:
        return math.nan
    if any(value <= 0 for value, _ in pairs):
        return 0.0
    total = math.fsum(weight for _, weight in pairs)
    return math.exp(math.fsum(weight * math.log(value) for value, weight in pairs) / total)


def geometric_mean(values: Sequence[float]) -> float:
    """``exp(mean(ln v))``; 0 if a value is 0, NaN if empty."""
    return weighted_geometric_mean(values, [1.0] * len(values))
