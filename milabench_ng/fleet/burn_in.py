"""Failures per node-hour of a burn-in, and whether they become fewer. Pure.

Failures are taken as a Poisson process: the interval of the rate is exact (Garwood 1936), and of as many failures as
there were, each would have been in the late half with probability one half if nothing had changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from milabench_ng.records.ledger import NOT_TRIED, LedgerLine, Recorded, Session
from milabench_ng.verification.checks.clocks import moment

_HOUR_S = 3600.0
_TAIL = 0.025


class Span(msgspec.Struct, frozen=True):
    """How long a node worked without a pause, and when launches failed, in seconds from its begin."""

    length_s: float
    failures: tuple[float, ...] = ()


class BurnIn(msgspec.Struct, frozen=True, kw_only=True):
    """What a burn-in showed."""

    node_hours: float
    early: int
    """Failures in the first half of each node's time."""
    late: int

    @property
    def failures(self) -> int:
        """All of them."""
        return self.early + self.late

    @property
    def rate(self) -> float:
        """Failures per node-hour."""
        return self.failures / self.node_hours

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate."""
        from scipy.special import gammaincinv

        low = float(gammaincinv(self.failures, _TAIL)) if self.failures else 0.0
        return low / self.node_hours, float(gammaincinv(self.failures + 1, 1 - _TAIL)) / self.node_hours

    @property
    def chance(self) -> float:
        """The probability of halves that differ at least as much, if the rate did not change."""
        from scipy.special import bdtr

        return min(1.0, 2 * float(bdtr(min(self.early, self.late), self.failures, 0.5)))


def burn_in(nodes: Iterable[Sequence[LedgerLine]]) -> BurnIn | None:
    """What the ledgers of nodes say; None if no node has worked."""
    seconds, early, late = 0.0, 0, 0
    for entries in nodes:
        spans = spans_of(entries)
        half, before = sum(span.length_s for span in spans) / 2, 0.0
        for span in spans:
            first = sum(before + moment < half for moment in span.failures)
            early, late = early + first, late + len(span.failures) - first
            before += span.length_s
        seconds += 2 * half
    return BurnIn(node_hours=seconds / _HOUR_S, early=early, late=late) if seconds else None


def spans_of(entries: Sequence[LedgerLine]) -> tuple[Span, ...]:
    """The time of each session of a ledger, from its begin to its last line."""
    begins = [place for place, entry in enumerate(entries) if isinstance(entry.what, Session)]
    ends = (*begins[1:], len(entries))[: len(begins)]
    return tuple(_span(entries[begin:end]) for begin, end in zip(begins, ends, strict=True))


def _span(entries: Sequence[LedgerLine]) -> Span:
    moments = [at for entry in entries if (at := moment(entry.utc))]
    if len(moments) < len(entries):  # a node may send anything
        return Span(0.0, ())
    since = [(at - moments[0]).total_seconds() for at in moments]
    failed = tuple(at for at, entry in zip(since, entries, strict=True) if _is_failure(entry))
    return Span(max(0.0, since[-1]), failed)


def _is_failure(entry: LedgerLine) -> bool:
    what = entry.what
    return isinstance(what, Recorded) and what.number > 0 and what.cause is not None and what.cause not in NOT_TRIED
