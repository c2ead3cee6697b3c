"""Times of batches and of the ledger's lines. Durations come from the monotonic clock, dates from the wall clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from milabench_ng.node.conditions import clock_set_by_s
from milabench_ng.records.ledger import Rebooted, Session
from milabench_ng.records.record import Mnb
from milabench_ng.verification.evidence import Evidence


class Span(msgspec.Struct, frozen=True):
    """A batch, on the wall clock (seconds since 1970) and on the monotonic one."""

    batch: int
    session: int
    began: float
    began_s: float
    length_s: float

    def idle_before(self, following: Span) -> float:
        """Seconds in which nothing ran; of one session by the monotonic clock, whatever was done to the other one."""
        same = self.session == following.session
        return (following.began_s - self.began_s if same else following.began - self.began) - self.length_s


def moment(utc: str) -> datetime | None:
    """A date in UTC; None for what is none."""
    try:
        found = datetime.fromisoformat(utc)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def seconds(utc: str) -> float | None:
    found = moment(utc)
    return None if found is None else found.timestamp()


def set_by_s(mnb: Mnb) -> float | None:
    """By how much the wall clock went on further than the monotonic one during a launch; None if that is not known."""
    before, after = mnb.conditions.get("before"), mnb.conditions.get("after")
    if before is None or after is None or moment(before.utc) is None or moment(after.utc) is None:
        return None
    return clock_set_by_s(before, after)


def spans_of(evidence: Evidence) -> list[Span]:
    """All batches whose conditions were read at both edges, in the order in which they began."""
    found: dict[tuple[int, datetime], Span] = {}
    for (number, utc), kept in evidence.batches().items():
        edges = kept[0].record.mnb.conditions
        before, after = edges.get("before"), edges.get("after")
        began = None if before is None else seconds(before.utc)
        if before is not None and after is not None and began is not None:
            length_s = after.time_s - before.time_s
            found[number, utc] = Span(number, kept[0].record.mnb.session, began, before.time_s, length_s)
    return sorted(found.values(), key=lambda span: (span.session, span.began_s))


def gaps_fact(evidence: Evidence) -> str:
    """How long nothing ran between batches: what was cut off and done again leaves a gap."""
    spans = spans_of(evidence)
    gaps = [(one.idle_before(next_), next_.batch) for one, next_ in pairwise(spans)]
    if not gaps:
        return "not known: fewer than two launch groups have dates"
    longest, batch = max(gaps)
    idle = sum(max(0.0, gap) for gap, _ in gaps)
    whole = idle + sum(span.length_s for span in spans)
    return f"{idle:.0f} s of {whole:.0f} s between launch groups, the longest {longest:.1f} s before group {batch + 1}"


def idle_times(evidence: Evidence, limit_s: float) -> Iterator[str]:
    """Batches of a session before which nothing ran for longer than ``limit_s``."""
    for one, next_ in pairwise(spans_of(evidence)):
        idle_s = one.idle_before(next_)
        if one.session == next_.session and idle_s > limit_s:
            yield f"nothing ran for {idle_s:.0f} s before launch group {next_.batch}, but the rules allow {limit_s:g} s"


def undated(evidence: Evidence) -> Iterator[str]:
    """Lines of the ledger, and records, without a date in UTC."""
    for line in evidence.ledger.entries:
        if moment(line.utc) is None:
            yield f"ledger, line {line.number + 1}: it has no date in UTC"
    for name, record in evidence.named():
        if any(moment(edge.utc) is None for edge in record.mnb.conditions.values()):
            yield f"{name}: it has no date in UTC"


def boots(evidence: Evidence) -> Iterator[str]:
    """Sessions whose boots the ledger does not explain."""
    sessions = evidence.ledger.sessions
    first = evidence.manifest.inventory.boot_id
    if sessions and first is not None and sessions[0].boot_id != first:
        yield "the ledger's first session and run.json are from different boots of the node"
    told = {(one.before, one.after) for one in evidence.ledger.events if isinstance(one, Rebooted)}
    changes = _changes(sessions)
    yield from (
        f"session {number} is from another boot of the node, but the ledger has no reboot"
        for number, pair in changes.items()
        if pair not in told
    )
    if told - set(changes.values()):
        yield "the ledger has a reboot between sessions of one boot"


def _changes(sessions: Sequence[Session]) -> dict[int, tuple[str, str]]:
    pairs = pairwise(sessions)
    return {two.number: (one.boot_id, two.boot_id) for one, two in pairs if one.boot_id != two.boot_id}
