"""A line of a decision's table: what was measured over the trials, and the limit that it must keep."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over the trials, as a fraction. Without a limit it is only shown."""

    what: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0
    """Standard error of ``measured``, by the number of trials."""

    @property
    def holds(self) -> bool:
        """Whether it keeps its limit."""
        return self.low <= self.measured <= self.high

    @property
    def holds_by_chance(self) -> bool:
        """Whether it keeps its limit, give or take four standard errors: for few trials."""
        return self.low - 4 * self.error <= self.measured <= self.high + 4 * self.error

    @property
    def limit(self) -> str:
        """In words; empty if it is only shown."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"{100 * self.low:g} to {100 * self.high:g}%"
        known = {"at least": self.low, "at most": self.high}
        return "".join(f"{word} {100 * edge:g}%" for word, edge in known.items() if math.isfinite(edge))

    @property
    def verdict(self) -> str:
        """``PASS`` or ``FAIL``; empty if it is only shown."""
        return ("PASS" if self.holds else "FAIL") if self.limit else ""


def share(what: str, hits: ArrayLike, low: float = -math.inf, high: float = math.inf) -> Finding:
    """Of the trials in which something happened (booleans)."""
    happened = np.asarray(hits, dtype=float).ravel()
    p = (happened.sum() + 1) / (happened.size + 2)  # never certain
    return Finding(
        what=what,
        measured=float(happened.mean()),
        low=low,
        high=high,
        error=math.sqrt(p * (1 - p) / happened.size),
    )


def average(what: str, values: ArrayLike, low: float = -math.inf, high: float = math.inf) -> Finding:
    """Of a number that each trial has."""
    numbers = np.asarray(values, dtype=float).ravel()
    error = float(numbers.std(ddof=1)) / math.sqrt(numbers.size)
    return Finding(what=what, measured=float(numbers.mean()), low=low, high=high, error=error)
