"""The host: what the hypervisor took, what was swapped in, whether its CPUs changed their speed, memory of a share."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.conditions.condition import Condition, Seen, held, risen
from milabench_ng.model.limits import most
from milabench_ng.model.units import MIB
from milabench_ng.records.host_pace import moved
from milabench_ng.telemetry.messages import HOST_KEY, telemetry_key

_PAGE_BYTES = 4096
"""Of /proc/vmstat's counters, on x86-64 and most others."""


def host(seen: Seen) -> Iterator[Condition]:
    """Steal in the window, and swap between the edges."""
    steal = seen.mnb.telemetry.get(telemetry_key("host", HOST_KEY), {}).get("cpu_steal_pct")
    if steal is not None:
        yield held("CPU steal", steal.mean / 100)
    before, after = seen.mnb.conditions.get("before"), seen.mnb.conditions.get("after")
    if before is not None and after is not None:
        pages = risen(before.host.pages_swapped_in, after.host.pages_swapped_in)
        if pages is not None:
            yield held("swap", pages * _PAGE_BYTES / MIB)


def shares(seen: Seen) -> Iterator[Condition]:
    """Of each slot: the speed of its CPUs, and how long all its tasks waited for memory."""
    for slot, edges in seen.mnb.host_pace.items():
        first, last = edges.get("before"), edges.get("after")
        if first is not None and last is not None and first.measured and last.measured:
            change = moved(first, last)
            yield Condition(
                kind="host pace",
                slot=slot,
                value=abs(last.measured / first.measured - 1),
                limit=most("host pace"),
                beyond=change is not None,
            )
    for slot, fence in seen.mnb.isolation.items():
        waited = fence.usage.pressure.get("memory") if fence.usage else None
        if waited is not None and waited.full_s is not None and seen.between_s > 0:
            yield held("memory pressure", waited.full_s / seen.between_s, slot)
