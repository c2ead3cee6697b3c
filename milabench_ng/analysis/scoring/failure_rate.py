"""The failure rate of a run with its bounds, and whether a node passes with it. Pure.

A cap is broken when even the lower bound exceeds it. The upper one of no failure in 216 launches is 1.4 %: judged by
it, no honest run of usual length would keep a cap of 1 %.
"""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.summary.summary import Summary

FAILURE_LIMIT = 0.01
"""The highest failure rate with which a node passes."""
_CHANCE = 0.05
"""Of each bound to be wrong."""


class FailureRate(msgspec.Struct, frozen=True, kw_only=True):
    """Failed launches over all launches, whether or not their tests have a weight."""

    n: int
    fail: int
    rate: float | None
    least: float
    """One-sided 95 % bounds (Clopper and Pearson, Biometrika 26, 1934), as ``most``: from 0 to 1 if nothing ran."""
    most: float
    missing: int = 0
    """Those of ``fail`` that have no record."""
    left: int = 0
    """Launches that an interrupted run has yet to do: no node passes before that."""

    @property
    def passed(self) -> bool:
        """Whether a node passes with it."""
        return self.rate is not None and not self.left and not self.exceeds(FAILURE_LIMIT)

    def exceeds(self, cap: float) -> bool:
        """Whether launches fail more often than this, beyond chance."""
        return self.least > cap

    @property
    def text(self) -> str:
        """In words: ``"0 of 216 failed: 0 %, at most 1.4 % with 95 % confidence"``."""
        if self.rate is None:
            return "no launch has finished"
        least = f"at least {100 * self.least:.2f}% and " if self.fail else ""
        missing = f" ({self.missing} without a record)" if self.missing else ""
        told = f"{self.fail} of {self.n} failed{missing}: {100 * self.rate:.3g}%"
        left = f"; {self.left} not run yet" if self.left else ""
        return f"{told}, {least}at most {100 * self.most:.1f}% with 95% confidence{left}"

    @property
    def excess(self) -> str:
        """How it fails more often than it may; empty if it does not, or if nothing was launched."""
        if self.left:
            return f"{self.left} of {self.n + self.left} launches have not run yet"
        return (
            f"{self.fail} of {self.n} launches failed (limit {100 * FAILURE_LIMIT:g}%)"
            if self.exceeds(FAILURE_LIMIT)
            else ""
        )


def failure_rate(summary: Summary) -> FailureRate:
    """The failure rate over all rows; a file that belongs to no row counts as a failed launch."""
    n, fail = summary.launches, summary.failures
    left = sum(row.pending for row in summary.tests.values()) if summary.interrupted else 0
    least, most = _bounds(fail, n)
    missing = sum(row.missing for row in summary.tests.values())
    rate = fail / n if n else None
    return FailureRate(n=n, fail=fail, rate=rate, least=least, most=most, missing=missing, left=left)


def _bounds(fail: int, n: int) -> tuple[float, float]:
    """The rates at which so many failures, or more, and so many, or fewer, have a chance of 5 %."""
    if not n:
        return 0.0, 1.0
    if not fail:
        return 0.0, 1 - _CHANCE ** (1 / n)
    from scipy.special import betaincinv  # heavy, and not needed for a run without failures

    most = float(betaincinv(fail + 1, n - fail, 1 - _CHANCE)) if fail < n else 1.0
    return float(betaincinv(fail, n - fail + 1, _CHANCE)), most
