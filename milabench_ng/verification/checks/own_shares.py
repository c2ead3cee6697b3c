"""Shares of launches against those that the run gave its slots: asked for, no others, and limits that nobody asked for.

Neighbours are compared in other checks; a test that runs alone has none, and only ``run.json`` says what its share is.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import IoLimit, Isolation, Share
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.record import Mnb
from milabench_ng.verification.evidence import Evidence

_RESUMED = 0.01
"""How far RAM may be from the first session's: MemTotal changes with a reboot, and `--resume` accepts as much."""
_SAME = ("pids", "cores", "nodes", "local", "smt_shared", "device_part")
"""What a scheduler leaves as it was asked for; it chooses CPUs and memory nodes itself, as many as were asked for."""


def own_shares(evidence: Evidence) -> Iterator[str]:
    """Launches that asked for another share than their slots have, or were held to limits that nobody asked for."""
    yield from _parts(evidence.manifest)
    for name, record in evidence.named():
        for slot, held in record.mnb.isolation.items():
            given = evidence.manifest.shares.get(slot)
            asked = () if given is None else _departing(record.mnb, held, given)
            added = _not_asked(record.mnb, held) if held.grouped_by == "mnb" else ()
            yield from (f"{name}: device {slot}: {why}" for why in (*asked, *added))


def _parts(manifest: Manifest) -> Iterator[str]:
    """Tenants of one device have equal parts of its memory, as many as the plan has tenants there."""
    tenants = manifest.plan.tenants_per_device
    for slot, share in manifest.shares.items():
        part = 1.0 if share.device_part is msgspec.UNSET else share.device_part
        if part != 1 / tenants:
            yield f"run.json gives device {slot} {part:.3g} of its memory, and the plan has {tenants} tenants on each"


def _departing(mnb: Mnb, held: Isolation, given: Share) -> Iterator[str]:
    """Differences from the share of its slot. A session that was resumed with other shares says so in a mark."""
    if mnb.session > 1 and any(mark.kind == "resumed" for mark in mnb.marks):
        return
    asked, scheduled = held.requested, held.grouped_by == "scheduler"
    if (len(asked.cpus) != len(given.cpus)) if scheduled else (asked.cpus != given.cpus):
        yield f"it requested CPUs {_listed(asked.cpus)}, but run.json says {_listed(given.cpus)}"
    if not scheduled and asked.mems != given.mems:
        yield f"it requested NUMA nodes {_listed(asked.mems)}, but run.json says {_listed(given.mems)}"
    for what in ("memory_bytes", "memory_nominal_bytes"):
        wanted, told = getattr(given, what), getattr(asked, what)
        room = _RESUMED * wanted if mnb.session > 1 else MIB if scheduled else 0
        if abs(told - wanted) > room:
            yield f"it requested {what} {told}, but run.json says {wanted}"
    for what in _SAME:
        wanted, told = getattr(given, what), getattr(asked, what)
        if wanted != told:
            yield f"it requested {what} {_shown(told)}, but run.json says {_shown(wanted)}"


def _not_asked(mnb: Mnb, held: Isolation) -> Iterator[str]:
    """Limits in the tenant's own group that its share has not; a kernel without that controller reports none."""
    asked = held.requested
    if asked.io and not held.io:
        yield f"it requested an I/O limit on {_disks(asked.io)}, but has none"
    for edge, seen in (("entry", held.effective), ("end", held.effective_end)):
        if seen is not None and seen.pids is not None and seen.pids != asked.pids:
            yield f"at its {edge} its limit was {seen.pids} processes, but it requested {asked.pids}"
        more = () if seen is None else tuple(limit for limit in seen.io if limit not in asked.io)
        if more:
            yield f"at its {edge} its group had an I/O limit on {_disks(more)} that was not requested"
    throttled = held.usage.throttled_usec if held.usage else None
    if throttled and not _below_a_quota(mnb):
        yield f"a quota held its CPUs back for {throttled / 1e6:.3g} s, and nothing gave its group one"


def _below_a_quota(mnb: Mnb) -> bool:
    """Whether a quota above may have held it back; also if nothing tells. Linux counts in a group only its own."""
    if mnb.surroundings is msgspec.UNSET or not mnb.surroundings:
        return True
    limits = [limit for edge in mnb.surroundings.values() for limit in edge.cpu_limits]
    return any(limit.cpus is not None or limit.held_back_s for limit in limits)


def _disks(limits: tuple[IoLimit, ...]) -> str:
    return ", ".join(limit.device for limit in limits)


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers)) or "none"


def _shown(value: object) -> str:
    return "nothing" if value is None or value is msgspec.UNSET else str(value)
