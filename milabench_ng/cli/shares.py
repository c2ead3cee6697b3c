"""Prints the shares of tenants."""

from __future__ import annotations

from rich.console import Group

from milabench_ng.cgroup_files import format_ids
from milabench_ng.cli.tables import table
from milabench_ng.fence.sharing.layout import Layout
from milabench_ng.records.isolation import Share, cache_text
from milabench_ng.units import format_bytes


def share_table(layout: Layout) -> Group:
    """One line per slot: its device, and what its tenant gets."""
    divided = ("last-level cache",) if any(slot.share.cache for slot in layout) else ()
    rows = [
        (
            *(slot.id, slot.device.name, slot.device.uuid or "-", *_cells(slot.share)),
            *(cache_text(slot.share.cache) for _ in divided),
        )
        for slot in layout
    ]
    headers = ("device", "name", "UUID", "CPUs", "cores", "RAM", "NUMA nodes", "local", *divided)
    return table(headers, rows, right=("device", "cores", "RAM", "local"), spare=("UUID", "local", "NUMA nodes"))


def _cells(share: Share) -> tuple[str, ...]:
    local = "-" if share.local is None else f"{share.local:.0%}"
    cores = f"{share.cores}{' (split)' if share.smt_shared else ''}"
    return format_ids(share.cpus), cores, format_bytes(share.memory_bytes), format_ids(share.nodes), local
