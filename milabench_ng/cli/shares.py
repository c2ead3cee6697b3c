"""The shares of tenants as a table."""

from __future__ import annotations

from milabench_ng.fence.sharing.layout import Layout
from milabench_ng.model.units import GIB
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.present.render.cells import Cell, number, percent, whole
from milabench_ng.present.render.sections import Heading, Section, table
from milabench_ng.records.isolation import Share, cache_text


def share_section(layout: Layout) -> Section:
    """One line per slot: its device, and what its tenant gets."""
    divided = any(slot.share.cache for slot in layout)
    rows = ((slot.id, slot.device.name, slot.device.uuid, *_cells(slot.share, divided=divided)) for slot in layout)
    return table("shares", rows, *_HEADINGS, *(["last-level cache"] if divided else []))


_HEADINGS = (
    Heading("device", number=True),
    Heading("name"),
    Heading("UUID", spare=3),
    Heading("CPUs"),
    Heading("cores", number=True),
    Heading("RAM", "GiB", number, True),
    Heading("NUMA nodes", spare=1),
    Heading("local", "%", whole, True, spare=2),
)


def _cells(share: Share, *, divided: bool) -> tuple[Cell, ...]:
    cores = f"{share.cores}{' (split)' if share.smt_shared else ''}"
    placed = (format_ids(share.cpus), cores, share.memory_bytes / GIB, format_ids(share.nodes), percent(share.local))
    return (*placed, cache_text(share.cache)) if divided else placed
