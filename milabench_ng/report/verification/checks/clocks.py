"""Times: two clocks were read at the edges of every batch and one at every line of the ledger, and all must agree.

Durations come from the monotonic clock, dates from the wall clock. Whoever edits one of them has to edit all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from milabench_ng.node.conditions import Conditions
from milabench_ng.records.ledger import Attempt, Rebooted, Recorded, Session
from milabench_ng.records.record import Record
from milabench_ng.report.verification.evidence import Evidence

CLOCK_S = 1.0
"""How far the wall clock may be set while a run goes on."""
_RATE = 1e-3
"""How far the two clocks may drift apart: honest runs differ by 1e-6, and NTP slews by at most 5e-4."""
_READING_S = 0.05
"""Between reading one clock and the other."""
_LATE_S = 120.0
"""How long after its second edge a record may be noted: honest runs take 0.04 s, slow disks seconds."""


class _Span(msgspec.Struct, frozen=True):
    """A batch, on the wall clock (seconds since 1970) and on the monotonic one."""

    batch: int
    session: int
    began: float
    ended: float
    began_s: float


def moment(utc: str) -> datetime | None:
    """A date in UTC; None for what is none."""
    try:
        found = datetime.fromisoformat(utc)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _seconds(utc: str) -> float | None:
    found = moment(utc)
    return None if found is None else found.timestamp()


def disagreeing_clocks(evidence: Evidence) -> Iterator[str]:
    """Launches, and batches of one boot, between which the two clocks passed different times."""
    for name, record in evidence.named():
        yield from (f"{name}: {why}" for why in _within(record))
    for one, next_ in pairwise(_spans(evidence)):
        wall, own = next_.began - one.began, next_.began_s - one.began_s
        if one.session == next_.session and abs(wall - own) > _RATE * abs(own) + CLOCK_S:
            batches = f"batch {one.batch} and batch {next_.batch}"
            yield f"between {batches} {wall:.1f} s passed by their dates and {own:.1f} s by the monotonic clock"


def _within(record: Record) -> Iterator[str]:
    mnb = record.mnb
    before, after = mnb.conditions.get("before"), mnb.conditions.get("after")
    if before is None or after is None:
        return
    first, last = _seconds(before.utc), _seconds(after.utc)
    if first is None or last is None:
        yield "its conditions have no date in UTC"
        return
    own = after.time_s - before.time_s
    if abs(last - first - own) > _RATE * own + _READING_S:
        yield f"{last - first:.2f} s passed by the dates of its conditions and {own:.2f} s by the monotonic clock"
    begun = _seconds(mnb.started_utc)
    if begun is not None and mnb.start_s is not None:
        started = first + mnb.start_s - before.time_s
        if not first - CLOCK_S <= begun <= started + CLOCK_S:
            yield f"its date is {begun - first:.1f} s after its first conditions, its start {started - first:.1f} s"


def _spans(evidence: Evidence) -> list[_Span]:
    """All batches whose conditions were read at both edges, in the order of their dates."""
    found: dict[tuple[int, str], _Span] = {}
    for (number, utc), kept in evidence.batches().items():
        edges = kept[0].record.mnb.conditions
        before, after = edges.get("before"), edges.get("after")
        began = None if before is None else _seconds(before.utc)
        if before is not None and after is not None and began is not None:
            ended = began + after.time_s - before.time_s
            found[number, utc] = _Span(number, kept[0].record.mnb.session, began, ended, before.time_s)
    return sorted(found.values(), key=lambda span: span.began)


def gaps_fact(evidence: Evidence) -> str:
    """How long nothing ran between batches: what was cut off and done again leaves a gap."""
    spans = _spans(evidence)
    gaps = [(next_.began - one.ended, next_.batch) for one, next_ in pairwise(spans)]
    if not gaps:
        return "not known: fewer than two batches have dates"
    longest, batch = max(gaps)
    whole = spans[-1].ended - spans[0].began
    idle = sum(max(0.0, gap) for gap, _ in gaps)
    return f"{idle:.0f} s of {whole:.0f} s between batches, the longest {longest:.1f} s before batch {batch}"


def idle_times(evidence: Evidence, limit_s: float) -> Iterator[str]:
    """Batches of a session before which nothing ran for longer than ``limit_s``."""
    for one, next_ in pairwise(_spans(evidence)):
        idle_s = next_.began - one.ended
        if one.session == next_.session and idle_s > limit_s:
            yield f"nothing ran for {idle_s:.0f} s before batch {next_.batch}, {limit_s:g} s are allowed"


def ledger_times(evidence: Evidence) -> Iterator[str]:
    """Lines of the ledger that are older than the one before, or that do not fit the records that they name."""
    if evidence.ledger is None:
        return
    at = [(entry.number, _seconds(entry.utc)) for entry in evidence.ledger.entries]
    yield from (f"ledger, line {number + 1}: it has no date in UTC" for number, date in at if date is None)
    dated = [(number, date) for number, date in at if date is not None]
    for (_, earlier), (number, then) in pairwise(dated):
        if then < earlier - CLOCK_S:
            yield f"ledger, line {number + 1}: it is {earlier - then:.1f} s older than the line before it"
    records = {kept.file: (kept.name, kept.record) for kept in evidence.records}
    begun: dict[tuple[str, str, int], float] = {}
    for entry in evidence.ledger.entries:
        event, date = entry.what, _seconds(entry.utc)
        if date is not None and isinstance(event, Attempt):
            begun[event.label, event.job_id, event.number] = date
        if date is not None and isinstance(event, Recorded) and event.file in records:
            name, record = records[event.file]
            tried = begun.get((event.label, event.job_id, event.number))
            yield from (f"{name}: {why}" for why in _noted(record.mnb.conditions.get("after"), date))
            yield from (f"{name}: {why}" for why in _announced(record, tried))


def _noted(after: Conditions | None, date: float) -> Iterator[str]:
    ended = None if after is None else _seconds(after.utc)
    if ended is not None and not -CLOCK_S <= date - ended <= _LATE_S:
        yield f"the ledger noted it {date - ended:.1f} s after its end"


def _announced(record: Record, tried: float | None) -> Iterator[str]:
    started = _seconds(record.mnb.started_utc)
    if tried is not None and started is not None and tried > started + CLOCK_S:
        yield f"the ledger announced it {tried - started:.1f} s after its start"


def boots(evidence: Evidence) -> Iterator[str]:
    """Sessions whose boots the ledger does not explain."""
    if evidence.ledger is None:
        return
    sessions = evidence.ledger.sessions
    first = evidence.manifest.inventory.boot_id
    if sessions and first is not None and sessions[0].boot_id != first:
        yield "the first session of the ledger is of another boot than run.json"
    told = {(one.before, one.after) for one in evidence.ledger.events if isinstance(one, Rebooted)}
    changes = _changes(sessions)
    yield from (
        f"session {number} is of another boot, and the ledger has no reboot"
        for number, pair in changes.items()
        if pair not in told
    )
    if told - set(changes.values()):
        yield "the ledger has a reboot between sessions of one boot"


def _changes(sessions: Sequence[Session]) -> dict[int, tuple[str, str]]:
    pairs = pairwise(sessions)
    return {two.number: (one.boot_id, two.boot_id) for one, two in pairs if one.boot_id != two.boot_id}
