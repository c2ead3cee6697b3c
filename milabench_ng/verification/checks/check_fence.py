"""Rules on the fence and on concurrency: what the kernel reported at the start and end of each launch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from milabench_ng.model.plan import slots_of
from milabench_ng.model.units import format_bytes
from milabench_ng.records.isolation import Effective, Isolation, ProcView, weakest_tier
from milabench_ng.records.ledger import Attempt, Company
from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.record import Record
from milabench_ng.records.retried import lost_neighbours
from milabench_ng.verification.checks.own_shares import own_shares
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged

_SAME_S = 1e-6
_TOUCHED_S = 1.0
"""CPU time is read a moment after the edges."""
_FORCED = 1.01
"""The kernel charges what cannot fail even beyond a limit, and the peak follows it (mm/memcontrol.c, try_charge)."""
_LIMITS = ("cpus", "mems", "memory_bytes", "swap_bytes", "pids", "io")


def isolation(evidence: Evidence) -> Finding:
    """In every launch the kernel held the tenant to its own share, separate from all others, from entry to stop."""
    tiers = {share.tier for _, record in evidence.named() for share in record.mnb.isolation.values()}
    if evidence.rules.isolation is None and tiers == {"none"}:
        return OFF
    return judged(
        [
            *_shares(evidence),
            *_overlaps(evidence),
            *_beyond_ram(evidence),
            *_beyond_cpus(evidence),
            *_beyond_share(evidence),
            *own_shares(evidence),
        ]
    )


def _shares(evidence: Evidence) -> Iterator[str]:
    demanded = evidence.rules.isolation
    for name, record in evidence.named():
        if not record.success and not record.mnb.isolation:
            continue  # it died before its share was read back; it counts as a failure
        for slot in record.mnb.launch.slot_ids:
            share = record.mnb.isolation.get(slot)
            if share is None:
                yield f"{name}: no isolation is recorded for device {slot}"
                continue
            if demanded is not None and weakest_tier([share.tier, demanded]) != demanded:
                yield f"{name}: isolation was {share.tier!r}, but the rules require {demanded!r}"
            if share.tier == "full":
                yield from (f"{name}: device {slot}: {reason}" for reason in _not_held(share, record.success))


def _not_held(share: Isolation, succeeded: bool) -> Iterator[str]:
    """Contradictions between a claim of full isolation and its evidence. A failed launch may have no end state."""
    entry, end = share.effective, share.effective_end
    if entry is None or share.proc is None:
        if succeeded:
            yield "no limits are recorded at its entry"
        return
    asked = share.requested
    for what, wanted, held in (
        ("CPUs", asked.cpus, entry.cpus),
        ("RAM", asked.memory_bytes, entry.memory_bytes),
        ("CPUs of its process", asked.cpus, share.proc.cpus_allowed),
    ):
        if wanted != held:
            yield f"{what}: {_shown(wanted)} requested, {_shown(held)} enforced"
    if entry.swap_bytes:
        yield f"it could swap {entry.swap_bytes} bytes"
    if end is None:
        if succeeded:
            yield "no limits are recorded at its end"
    else:
        yield from _changes(entry, end)
    if share.disjoint is False:
        yield "other tenants could use its CPUs"
    if share.grouped_by == "mnb":
        yield from _outside(share, share.proc)


def _outside(share: Isolation, process: ProcView) -> Iterator[str]:
    """Contradictions between a group of the kernel and the process that is said to be in it."""
    if not any(group.endswith(f"/{share.group}") for group in process.groups):
        yield f"its process is in none of its groups ({share.group})"
    seen = process.confinement
    if seen is None:
        return
    kept = (seen.cgroup_namespace, seen.groups_read_only, seen.ipc_namespace, seen.no_new_privs)
    if not any(kept) or "SYS_ADMIN" in seen.capabilities:
        yield "its process kept the means to leave its isolation"


def _changes(entry: Effective, end: Effective) -> Iterator[str]:
    for name in _LIMITS:
        first, last = getattr(entry, name), getattr(end, name)
        if first != last:
            yield f"{name} was {_shown(first)} at entry and {_shown(last)} at the end"


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


def _overlaps(evidence: Evidence) -> Iterator[str]:
    """CPUs given to two tenants of a batch in full isolation, and batches whose tenants had unfair numbers of CPUs."""
    plan = evidence.manifest.plan
    parts = {slot: device.known_part for slot, device in slots_of(plan.devices, plan.tenants_per_device).items()}
    for (number, _), kept in evidence.batches().items():
        shares = [(name, held.cpus, parts.get(slot, 1.0)) for name, slot, held in _held(kept) if held.cpus is not None]
        taken: dict[int, str] = {}
        for name, cpus, _ in shares:
            for cpu in cpus:
                if cpu in taken:
                    yield f"launch group {number}: {name} and {taken[cpu]} had CPU {cpu}"
                taken[cpu] = name
        if _unfair([(part, len(cpus)) for _, cpus, part in shares]):
            yield f"launch group {number}: its tenants had different numbers of CPUs"


def _held(batch: Sequence[ReadRecord]) -> Iterator[tuple[str, str, Effective]]:
    """What the kernel held each tenant of a batch in full isolation to: launch, slot, limits."""
    for one in batch:
        for slot, share in one.record.mnb.isolation.items():
            if share.tier == "full" and share.effective is not None:
                yield one.name, slot, share.effective


def _unfair(counts: Sequence[tuple[float, int]]) -> bool:
    """Whether a tenant had fewer CPUs than another with no larger part of a GPU."""
    return any(part >= other and count < more for part, count in counts for other, more in counts)


def _beyond_ram(evidence: Evidence) -> Iterator[str]:
    """Batches whose tenants had more RAM in all than the node showed: such limits hold nobody."""
    for (number, _), kept in evidence.batches().items():
        given = sum(held.memory_bytes or 0 for _, _, held in _held(kept))
        edges = [edge for one in kept for edge in one.record.mnb.conditions.values()]
        seen = max((edge.host.memory_total_bytes or 0 for edge in edges), default=0)
        had = seen or evidence.manifest.inventory.memory_bytes
        if given > had:
            what = f"{format_bytes(given)} of RAM, the node had {format_bytes(had)}"
            yield f"launch group {number}: its tenants were given {what}"


def _beyond_cpus(evidence: Evidence) -> Iterator[str]:
    """More CPUs than the node is said to have: nobody could then tell what other programs took of them."""
    given = {cpu for share in evidence.manifest.shares.values() for cpu in share.cpus}
    had = evidence.manifest.inventory.cpus.threads
    if len(given) > had:
        yield f"its tenants were given {len(given)} CPUs, and run.json says that the node has {had}"


def _beyond_share(evidence: Evidence) -> Iterator[str]:
    """Launches that took more CPU time than their CPUs had, or more RAM than their limit."""
    for name, record in evidence.named():
        before, after = record.mnb.conditions.get("before"), record.mnb.conditions.get("after")
        for slot, share in record.mnb.isolation.items():
            cpus = share.effective.cpus if share.effective else None
            used = share.usage.cpu_usec if share.usage else None
            if before is not None and after is not None and cpus and used is not None:
                had_s = len(cpus) * (after.time_s - before.time_s)
                if used / 1e6 > had_s + _TOUCHED_S:
                    yield f"{name}: it used {used / 1e6:.1f} s of CPU time, {len(cpus)} CPUs had {had_s:.1f} s"
            limit, peak = share.requested.memory_bytes, share.usage.memory_peak_bytes if share.usage else None
            if peak is not None and limit is not None and share.tier == "full" and peak > limit * _FORCED:
                yield f"{name}: device {slot}: it held {peak} bytes of RAM, its limit was {limit}"


def together(evidence: Evidence) -> Finding:
    """The launches of a batch ran at the same time, all until the stop, and batches ran one after another."""
    return judged([*_lonely(evidence), *_ended_early(evidence), *_apart(evidence), *_overtaking(evidence)])


def _lonely(evidence: Evidence) -> Iterator[str]:
    planned = evidence.launches_planned
    for name, record in evidence.named():
        found, expected = record.mnb.neighbours, planned.get(record.mnb.batch, 1) - 1
        if found.planned != expected:
            yield f"{name}: it had {found.planned} neighbors, but the plan has {expected}"
        told = lost_neighbours(record.mnb.marks)
        if record.success and not told and (found.lost or found.alive_at_stop < found.planned):
            yield f"{name}: {found.alive_at_stop} of {found.planned} neighbors were there at the stop"


def _ended_early(evidence: Evidence) -> Iterator[str]:
    """Launches whose neighbours failed before the stop, and that say that all were there."""
    for kept in evidence.batches().values():
        for one in kept if len(kept) > 1 else ():
            stop_s = one.record.mnb.stop_s or 0.0
            early = [other for other in kept if other is not one and _was_gone(other.record, stop_s)]
            if one.record.success and len(early) > len(one.record.mnb.neighbours.lost):
                failure = early[0].record.mnb.failure
                cause = failure.cause if failure else "unknown"
                failed = f"its neighbor {early[0].name} failed ({cause}) before the stop"
                yield f"{one.name}: {failed}, and it says that all were there"


def _was_gone(record: Record, stop_s: float) -> bool:
    """Whether it worked and failed well before the stop; one that hung was still there."""
    failure, ends = record.mnb.failure, [row.end_s for rank in record.mnb.ranks for row in rank.slices]
    early_s = stop_s - record.mnb.window_rule.margin_s
    return failure is not None and failure.cause != "timeout" and bool(ends) and max(ends) < early_s


def _apart(evidence: Evidence) -> Iterator[str]:
    """Batches begun twice without a retry (which takes the others as company), or not started and stopped together."""
    events = evidence.ledger.events
    measured = {
        (batch.number, launch.label, launch.job_id)
        for batch in evidence.manifest.plan.batches
        for launch in batch.launches
        if launch.measured
    }
    company = [event for event in events if isinstance(event, Company)]
    again = {event.batch for event in company if (event.batch, event.label, event.job_id) in measured}
    again |= {event.batch for event in events if isinstance(event, Attempt) and event.number > 1}
    begun = Counter(number for number, _ in evidence.batches())
    for number, times in sorted(begun.items()):
        if times > 1 and number not in again:
            yield f"launch group {number}: its launches were begun at {times} different times"
    for (number, _), kept in evidence.batches().items():
        if not _at_once([one.record for one in kept]):
            yield f"launch group {number}: its launches did not start and stop together"


def _at_once(records: Sequence[Record]) -> bool:
    """Whether all launches that succeeded have the same start line and stop."""
    good = [record.mnb for record in records if record.success]
    spans = [(mnb.start_s or math.nan, mnb.stop_s or math.nan) for mnb in good]
    return all(abs(start - spans[0][0]) <= _SAME_S and abs(stop - spans[0][1]) <= _SAME_S for start, stop in spans)


def _overtaking(evidence: Evidence) -> Iterator[str]:
    """Batches of a session that began before another one had stopped, by the monotonic clock: two runs at once."""
    spans = {
        (mnb.session, mnb.start_s, mnb.stop_s, mnb.batch)
        for mnb in (kept.record.mnb for kept in evidence.good)
        if mnb.start_s is not None and mnb.stop_s is not None
    }
    for (session, _, stop_s, batch), (other, start_s, _, following) in pairwise(sorted(spans)):
        if session == other and start_s < stop_s - _SAME_S and batch != following:
            yield f"launch group {following} began {stop_s - start_s:.1f} s before launch group {batch} had stopped"
