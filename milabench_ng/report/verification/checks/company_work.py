"""Company that was there and worked: a launch beside it says what its neighbours were, and nobody else checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.plan import Launch
from milabench_ng.records.ledger import Attempt, Chain, Company, Recorded, Session
from milabench_ng.records.record import Record
from milabench_ng.records.window import Window
from milabench_ng.report.verification.evidence import Evidence, StoredRecord

Place = tuple[str, str]
"""Label and job id."""


def idle_company(evidence: Evidence) -> Iterator[str]:
    """Launches whose neighbours ended before the stop, though they say otherwise, or whose company did nothing."""
    for (_, _), kept in evidence.batches().items():
        for one in kept:
            window = one.record.mnb.window
            if one.record.success and window is not None:
                others = [other for other in kept if other is not one]
                yield from (f"{one.name}: its {why}" for why in _beside(one.record, window, others))


def _beside(record: Record, window: Window, others: Sequence[StoredRecord]) -> Iterator[str]:
    told, stop_s = record.mnb.neighbours, record.mnb.stop_s or 0.0
    early = [other for other in others if _ended_early(other.record, stop_s)]
    if len(early) > len(told.lost):
        failure = early[0].record.mnb.failure
        cause = failure.cause if failure else "unknown"
        yield f"neighbour {early[0].name} failed ({cause}) before the stop, and it says that all were there"
    for other in others:
        if not other.record.mnb.launch.measured and other not in early and not _items(other.record, window):
            yield f"company {other.name} did nothing in its window"


def _ended_early(record: Record, stop_s: float) -> bool:
    """Whether it worked and was gone well before the stop; one that hung was still there."""
    failure, ends = record.mnb.failure, [row.end_s for rank in record.mnb.ranks for row in rank.slices]
    return (
        failure is not None
        and failure.cause != "timeout"
        and bool(ends)
        and max(ends) < stop_s - record.mnb.window_rule.margin_s
    )


def _items(record: Record, window: Window) -> int:
    rows = (row for rank in record.mnb.ranks for row in rank.slices)
    return sum(row.count for row in rows if row.start_s < window.end_s and row.end_s > window.start_s)


class _Go(msgspec.Struct):
    """One time that a batch was begun, as the ledger has it."""

    batch: int
    begun: list[Attempt | Company]
    recorded: list[Recorded]

    def has(self, place: Place, kind: type[Attempt | Company]) -> bool:
        return any(isinstance(event, kind) and (event.label, event.job_id) == place for event in self.begun)


def unnoted_company(evidence: Evidence) -> Iterator[str]:
    """Batches that the ledger has without the company that the plan gives them, or without its records."""
    planned = {
        batch.number: [launch for launch in batch.launches if not launch.measured]
        for batch in evidence.manifest.plan.batches
    }
    for go in _goes(evidence.ledger or Chain()):
        for launch in planned.get(go.batch, []):
            yield from (f"batch {go.batch}: {launch.label} J{launch.job_id} {why}" for why in _unnoted(go, launch))


def _unnoted(go: _Go, launch: Launch) -> Iterator[str]:
    place = (launch.label, launch.job_id)
    if not go.has(place, Company):
        yield "is its company by the plan, and the ledger began the batch without it"
    elif go.recorded and place not in {(event.label, event.job_id) for event in go.recorded}:
        yield "was its company, and the ledger has no record of it beside those of the batch"


def _goes(chain: Chain) -> Iterator[_Go]:
    """Each time that a batch was begun, with the records that it left."""
    current: _Go | None = None
    for event in chain.events:
        if isinstance(event, Attempt | Company):
            if current is None or current.recorded or current.batch != event.batch:
                yield from [current] if current else []
                current = _Go(event.batch, [], [])
            current.begun.append(event)
        elif isinstance(event, Recorded) and current is not None:
            current.recorded.append(event)
        elif isinstance(event, Session) and current is not None:
            yield current
            current = None
    yield from [current] if current else []
