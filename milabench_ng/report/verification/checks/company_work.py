"""Company that was there and worked: a launch beside it says what its neighbours were, and nobody else checks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from milabench_ng.builtin import Declared
from milabench_ng.grouping import grouped
from milabench_ng.plan import Launch
from milabench_ng.records.ledger import Attempt, Chain, Company, Recorded, Session
from milabench_ng.records.record import Mnb, Record
from milabench_ng.records.window import Window, rate
from milabench_ng.report.verification.evidence import Evidence, StoredRecord

Place = tuple[str, str]
"""Label and job id."""

_EQUALS = 3
"""Other launches of the same company that say what is usual."""
_TIMES, _TIMES_ON_STORAGE = 3.0, 10.0
"""How far a rate may be from the usual one: honest company of the CPU varies by 1.15, writers of a disk by 2.7."""
_CPU_TIMES = 3.0
"""How many times less CPU time a second it may take than usual: honest company of the CPU varies by 1.03."""
_LEAST_CPU = 0.1
"""Of the time that its CPUs have while it works: honest antagonists of the CPU take 0.5 to 1."""


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


class _Pace(msgspec.Struct, frozen=True):
    """What a launch of company did in a second: items, and seconds of CPU time where the CPU bounds it."""

    name: str
    bound: str | None
    items: float
    cpu: float | None
    least_cpu: float


def rested_company(evidence: Evidence) -> Iterator[str]:
    """Launches of company far slower or faster, or with far less CPU time, than the same company in other batches.

    The same: of one test, with the same options and share, beside launches of the same tests. Launches with a mark are
    left out: it may say what held them up. What reads a data set is, too: it may find it in the page cache.
    """
    paces: list[tuple[object, _Pace]] = []
    for kept in evidence.batches().values():
        for one in kept:
            mnb, own = one.record.mnb, evidence.builtin.get(one.record.mnb.launch.workload)
            known = one.record.success and not mnb.launch.measured and not mnb.marks
            if known and own is not None and own.data is None and mnb.window is not None:
                beside = sorted(other.record.mnb.label for other in kept if other is not one)
                paces.append(((_share(mnb), *beside), _pace(one.name, mnb, mnb.window, own)))
    for alike in grouped(paces, lambda pair: pair[0]).values():
        yield from _unlike([pace for _, pace in alike])


def _share(mnb: Mnb) -> tuple[object, ...]:
    """Test, options, devices and numbers of CPUs of a launch."""
    parts = tuple(share.requested.device_part for share in mnb.isolation.values())
    devices = tuple((device.kind, device.name) for device in mnb.devices)
    return mnb.label, frozenset(mnb.launch.arguments.items()), devices, parts, _cpus(mnb)


def _cpus(mnb: Mnb) -> int | None:
    held = [share.effective.cpus for share in mnb.isolation.values() if share.effective]
    return sum(len(cpus) for cpus in held if cpus) if held and all(held) else None


def _pace(name: str, mnb: Mnb, window: Window, own: Declared) -> _Pace:
    """Without CPU time, unless it is an antagonist of the CPU whose CPU time was counted."""
    used = [share.usage.cpu_usec for share in mnb.isolation.values() if share.usage]
    counted = [each for each in used if each is not None]
    worked_s = math.fsum(row.length_s for row in mnb.ranks[0].slices)
    presses = own.bound == "cpu" and "busy" in own.defaults and counted and worked_s > 0
    busy = mnb.launch.arguments.get("busy")
    return _Pace(
        name,
        own.bound,
        math.fsum(rate(rank.slices, window) for rank in mnb.ranks),
        sum(counted) / 1e6 / worked_s if presses else None,
        _LEAST_CPU * (_cpus(mnb) or 1) * (busy if isinstance(busy, float) else 1.0),
    )


def _unlike(alike: Sequence[_Pace]) -> Iterator[str]:
    for one in alike:
        if one.cpu is not None and one.cpu < one.least_cpu:
            yield f"company {one.name} took {one.cpu:.3g} s of CPU time a second (at least {one.least_cpu:.3g})"
        others = [other for other in alike if other is not one]
        if len(others) < _EQUALS:
            continue
        times, usual = _TIMES_ON_STORAGE if one.bound == "io" else _TIMES, median(other.items for other in others)
        if one.items * times < usual or one.items > usual * times:
            yield f"company {one.name} made {one.items:.6g} items/s, {usual:.6g} in other batches of its kind"
        took = [other.cpu for other in others if other.cpu is not None]
        if one.cpu is not None and len(took) >= _EQUALS and one.cpu * _CPU_TIMES < median(took):
            yield f"company {one.name} took {one.cpu:.3g} s of CPU time a second, others of its kind {median(took):.3g}"


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
