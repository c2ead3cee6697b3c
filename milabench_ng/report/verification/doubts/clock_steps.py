"""Wall clock and monotonic clock that passed different times: the clock was set, or a date was edited."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from milabench_ng.grouping import grouped
from milabench_ng.node.conditions import CLOCK_LIMIT_S, Conditions
from milabench_ng.records.ledger import Attempt, Recorded
from milabench_ng.records.record import Record
from milabench_ng.report.verification.checks.clocks import Span, seconds, set_by_s, spans_of
from milabench_ng.report.verification.doubts.doubt import Doubt
from milabench_ng.report.verification.evidence import Evidence

_RATE = 1e-3
"""How far the two clocks may drift apart: honest runs differ by 1e-6, and NTP slews by at most 5e-4."""
_LATE_S = 120.0
"""How long after its second edge a record may be noted: honest runs take 0.04 s, slow disks seconds."""


def _steps(evidence: Evidence) -> Iterator[str]:
    """Nothing of a run whose marks say that the clock was set: that is known, and rules may refuse it."""
    if not any(mark.kind == "clock set" for _, record in evidence.named() for mark in record.mnb.marks):
        yield from _disagreeing(evidence)
        yield from _ledger_times(evidence)


def _disagreeing(evidence: Evidence) -> Iterator[str]:
    """Launches, batches of one boot, and sessions in which the two clocks passed different times."""
    for name, record in evidence.named():
        yield from (f"{name}: {why}" for why in _within(record))
    for spans in grouped(spans_of(evidence), lambda span: span.session).values():
        steps = [why for one, next_ in pairwise(spans) if (why := _between(one, next_))]
        yield from steps or filter(None, [_between(spans[0], spans[-1])])


def _between(one: Span, other: Span) -> str:
    """How the clocks disagree; empty if they do not."""
    wall, own = other.began - one.began, other.began_s - one.began_s
    if abs(wall - own) <= _RATE * abs(own) + CLOCK_LIMIT_S:
        return ""
    batches = f"batch {one.batch} and batch {other.batch}"
    return f"between {batches} {wall:.1f} s passed by their dates and {own:.1f} s by the monotonic clock"


def _within(record: Record) -> Iterator[str]:
    mnb = record.mnb
    before, moved_s = mnb.conditions.get("before"), set_by_s(mnb)
    first = None if before is None else seconds(before.utc)
    if before is None or first is None or moved_s is None:  # the rule on the ledger tells
        return
    if abs(moved_s) > CLOCK_LIMIT_S:
        yield f"the date went on by {moved_s:.2f} s more than the monotonic clock, from its first conditions on"
    begun = seconds(mnb.started_utc)
    if begun is not None and mnb.start_s is not None:
        started = first + mnb.start_s - before.time_s
        if not first - CLOCK_LIMIT_S <= begun <= started + CLOCK_LIMIT_S:
            yield f"its date is {begun - first:.1f} s after its first conditions, its start {started - first:.1f} s"


def _ledger_times(evidence: Evidence) -> Iterator[str]:
    """Lines of the ledger that are older than the one before, or that do not fit the records that they name."""
    if evidence.ledger is None:
        return
    at = [(entry.number, seconds(entry.utc)) for entry in evidence.ledger.entries]
    dated = [(number, date) for number, date in at if date is not None]
    for (_, earlier), (number, then) in pairwise(dated):
        if then < earlier - CLOCK_LIMIT_S:
            yield f"ledger, line {number + 1}: it is {earlier - then:.1f} s older than the line before it"
    records = {kept.file: (kept.name, kept.record) for kept in evidence.records}
    begun: dict[tuple[str, str, int], float] = {}
    for entry in evidence.ledger.entries:
        event, date = entry.what, seconds(entry.utc)
        if date is not None and isinstance(event, Attempt):
            begun[event.label, event.job_id, event.number] = date
        if date is not None and isinstance(event, Recorded) and event.file in records:
            name, record = records[event.file]
            tried = begun.get((event.label, event.job_id, event.number))
            yield from (f"{name}: {why}" for why in _noted(record.mnb.conditions.get("after"), date))
            yield from (f"{name}: {why}" for why in _announced(record, tried))


def _noted(after: Conditions | None, date: float) -> Iterator[str]:
    ended = None if after is None else seconds(after.utc)
    if ended is not None and not -CLOCK_LIMIT_S <= date - ended <= _LATE_S:
        yield f"the ledger noted it {date - ended:.1f} s after its end"


def _announced(record: Record, tried: float | None) -> Iterator[str]:
    started = seconds(record.mnb.started_utc)
    if tried is not None and started is not None and tried > started + CLOCK_LIMIT_S:
        yield f"the ledger announced it {tried - started:.1f} s after its start"


DOUBT = Doubt(
    name="clock-steps",
    title="clocks that passed different times",
    ask="ask for the log of the time service; stamps on the ledger settle it (R32)",
    look=_steps,
)
