"""The failure rate of a run, and whether a node passes with it. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.report.summary.summary import Summary

FAILURE_LIMIT = 0.01
"""The highest failure rate with which a node passes."""


class FailureRate(msgspec.Struct, frozen=True, kw_only=True):
    """Failed launches over all launches, whether or not their tests have a weight."""

    n: int
    fail: int
    rate: float | None
    passed: bool
    left: int = 0
    """Launches that an interrupted run has yet to do: no node passes before that."""

    @property
    def excess(self) -> str:
        """How it fails more often than it may; empty if it does not, or if nothing was launched."""
        if self.left:
            return f"{self.left} of {self.n + self.left} launches were not run yet"
        return (
            ""
            if self.passed or not self.n
            else f"{self.fail} of {self.n} launches failed, the limit is {100 * FAILURE_LIMIT:g} %"
        )


def failure_rate(summary: Summary) -> FailureRate:
    """The failure rate over all rows; a file that belongs to no row counts as a failed launch."""
    n, fail = summary.launches, summary.failures
    rate = fail / n if n else None
    left = sum(row.pending for row in summary.tests.values()) if summary.interrupted else 0
    passed = rate is not None and rate <= FAILURE_LIMIT and not left
    return FailureRate(n=n, fail=fail, rate=rate, passed=passed, left=left)
