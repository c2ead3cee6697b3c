"""Items of tests that write and read files against what the kernel counted for their groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Literal

from milabench_ng.node.storage import Storage
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.record import Mnb
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.requests import STORAGE_VARIABLE
from milabench_ng.units import GIB, MIB

Transfer = Literal["read", "write"]
_MOVED: dict[str, tuple[Transfer, ...]] = {
    "checkpoint": ("read", "write"),
    "disk_read": ("read",),
    "disk_write": ("write",),
}
"""What is done with the MiB that is an item; `checkpoint` reads what the page cache has not got."""
_LESS = 0.5
"""Part of the items that the kernel must have counted. Honest launches on ext4: 1.00 of what was read, 1.00 to 1.04 of
what was written (12 launches, 1.8 to 36 GiB each), since the first round of files is no item."""
_COUNTED, _COUNTED_BYTES = 0.05, GIB
"""Part of the items, or bytes, from which on what was written shows that this disk is counted, where v1 may count
another one alone: a launch writes nothing else of that size."""
_AT_ONCE_MIB = 8
"""Written between two syncs by all launches of a batch, so little that no flusher of the kernel writes it for them."""
_FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs")
"""Those whose readers read, and whose writers write at fsync(2), themselves; others have threads for it."""
_BY_OTHERS = ("data=journal", "nodelalloc", "dax", "dax=always")
"""Mount options with which the journal's thread writes, or no block device is read."""
_CACHED = 0.5
"""Part of a file on tmpfs that is at least in memory: all of it, unless it was swapped out."""


def counted_io(evidence: Evidence) -> Iterator[str]:
    """Launches whose kernel counted under half of what their items say, or that read memory and call it a disk."""
    storage = evidence.manifest.storage.get("dataroot")
    planned = evidence.launches_planned
    for kept in evidence.good:
        mnb = kept.record.mnb
        if storage is None or mnb.launch.workload not in _MOVED:
            continue
        if not _is_below(mnb, storage.path, evidence.manifest.dataroot):
            continue
        if storage.filesystem == "tmpfs":
            found = _not_in_memory(mnb, evidence.manifest.inventory.swap_bytes)
        else:
            found = _too_few(mnb, storage, planned.get(mnb.batch, 1)) if _is_counted(storage) else iter(())
        yield from (f"{kept.name}: {why}" for why in found)


def _is_below(mnb: Mnb, *places: str) -> bool:
    """Whether its files lay in a folder of the data root, which has a name and, without links, another one."""
    files = mnb.environment.get(STORAGE_VARIABLE)
    return files is not None and any(PurePath(files).is_relative_to(place) for place in places)


def _is_counted(storage: Storage) -> bool:
    """Whether the kernel counts for a group what it reads and writes there."""
    known = storage.kind == "disk" and storage.filesystem in _FILE_SYSTEMS and not storage.rests_on
    disk = storage.device or "pmem"
    return known and not disk.startswith("pmem") and not set(storage.options) & set(_BY_OTHERS)


def _too_few(mnb: Mnb, storage: Storage, tenants: int) -> Iterator[str]:
    """What v1 counts proves less: on kernels from 6.10 on only disks on which something was throttled, and never what a
    flusher of the kernel writes for the group, nor does v2 on xfs before 5.5."""
    shares = tuple(mnb.isolation.values())
    v2 = all(share.mode == "v2" for share in shares)
    due = {what: _due(mnb, what) for what in _MOVED[mnb.launch.workload]}
    counted = {what: _counted(shares, what) for what in due}
    enough = min(_COUNTED_BYTES, _COUNTED * MIB * sum(rank.count for rank in mnb.ranks))
    if not v2 and (_counted(shares, "write") or 0) < enough:
        return
    own_writes = (v2 and storage.filesystem != "xfs") or _dirty_mib(mnb) * tenants <= _AT_ONCE_MIB
    for what, wanted in due.items():
        seen = counted[what] if what == "read" or own_writes else None
        if wanted is not None and seen is not None and seen < _LESS * wanted:
            done = "read" if what == "read" else "wrote"
            yield f"its items {done} {wanted / MIB:.0f} MiB, and the kernel counted {seen / MIB:.0f} MiB"


def _counted(shares: Sequence[Isolation], what: Transfer) -> int | None:
    """None where a group of it was not counted."""
    read = [getattr(share.usage, f"io_{what}_bytes", None) for share in shares]
    return None if None in read or not read else sum(one or 0 for one in read)


def _due(mnb: Mnb, what: Transfer) -> float | None:
    """Bytes by its items, without those that the page cache served; None if nothing tells how many those were."""
    items = MIB * float(sum(rank.count for rank in mnb.ranks))
    if what == "write" or mnb.launch.workload != "checkpoint":
        return items
    cached = _cached(mnb)
    return None if cached is None else items * (1 - cached)


def _cached(mnb: Mnb) -> float | None:
    """The mean part of its files that the page cache held when they were read; None if a slice does not tell."""
    rows = [row for rank in mnb.ranks for row in rank.slices if row.steps]
    if not rows or any("cached" not in row.notes for row in rows):
        return None
    return sum(row.notes["cached"] for row in rows) / sum(row.steps for row in rows)


def _dirty_mib(mnb: Mnb) -> float:
    """What it writes before it waits for the storage, at most."""
    options = mnb.launch.arguments
    sizes = (options.get(name) for name in ("shard_mib", "mib", "writers"))
    return math.prod(size for size in sizes if isinstance(size, int | float))


def _not_in_memory(mnb: Mnb, swap_bytes: int | None) -> Iterator[str]:
    """Files on tmpfs are pages of memory, unless something swapped them out."""
    cached = _cached(mnb)
    if cached is not None and cached < _CACHED and not swap_bytes:
        yield f"its files lay on tmpfs, and {cached:.0%} of what it read was in memory"
