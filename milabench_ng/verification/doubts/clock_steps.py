"""Clocks that passed different times: the wall clock was set, a date was edited, or the node's clock was slowed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from milabench_ng.model.grouping import grouped
from milabench_ng.node.conditions import CLOCK_LIMIT_S
from milabench_ng.records.record import Record
from milabench_ng.verification.checks.clocks import Span, seconds, set_by_s, spans_of
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_RATE = 1e-3
"""How far the two clocks may drift apart: honest runs differ by 1e-6, and NTP slews by at most 5e-4."""


def _steps(evidence: Evidence) -> Iterator[str]:
    yield from _slowed(evidence)
    if any(mark.kind == "clock set" for _, record in evidence.named() for mark in record.mnb.marks):
        return  # that is known, and rules may refuse it
    for name, record in evidence.named():
        yield from (f"{name}: {why}" for why in _within(record))
    for spans in grouped(spans_of(evidence), lambda span: span.session).values():
        steps = [why for one, next_ in pairwise(spans) if (why := _between(one, next_))]
        yield from steps or filter(None, [_between(spans[0], spans[-1])])


def _slowed(evidence: Evidence) -> Iterator[str]:
    """Sessions in which the clock that measures went on at another pace than the hardware (adjtimex(2)).

    Over a whole session: chrony may slew away a second within a launch.
    """
    for number, kept in grouped(evidence.records, lambda one: one.record.mnb.session).items():
        edges = [edge for one in kept for edge in one.record.mnb.conditions.values()]
        read = [(edge.time_s, edge.raw_s) for edge in edges if edge.raw_s is not msgspec.UNSET]
        own, counted = (max(side) - min(side) for side in zip(*read, strict=True)) if read else (0.0, 0.0)
        if abs(own - counted) > _RATE * abs(counted) + CLOCK_LIMIT_S:
            passed = f"{own:.1f} s passed by the clock that measures"
            yield f"session {number}: {passed}, and the hardware counted {counted:.1f} s"


def _between(one: Span, other: Span) -> str:
    """How the clocks disagree; empty if they do not."""
    wall, own = other.began - one.began, other.began_s - one.began_s
    if abs(wall - own) <= _RATE * abs(own) + CLOCK_LIMIT_S:
        return ""
    groups = f"launch groups {one.batch} and {other.batch}"
    return f"between {groups}, the wall clock advanced by {wall:.1f} s, but the monotonic clock by {own:.1f} s"


def _within(record: Record) -> Iterator[str]:
    mnb = record.mnb
    before, moved_s = mnb.conditions.get("before"), set_by_s(mnb)
    first = None if before is None else seconds(before.utc)
    if before is None or first is None or moved_s is None:  # the rule on the ledger tells
        return
    if abs(moved_s) > CLOCK_LIMIT_S:
        yield f"the date went on by {moved_s:.2f} s more than the monotonic clock, from its first conditions on"
    if mnb.start_s is not None:
        begun = mnb.started_utc.timestamp()
        started = first + mnb.start_s - before.time_s
        if not first - CLOCK_LIMIT_S <= begun <= started + CLOCK_LIMIT_S:
            yield f"its date is {begun - first:.1f} s after its first conditions, its start {started - first:.1f} s"


DOUBT = Doubt(
    name="clock-steps",
    title="clocks that disagree",
    ask="ask for the log of the time service; timestamps on the ledger settle it (R32)",
    look=_steps,
)
