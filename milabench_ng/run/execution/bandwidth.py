"""Checks before a batch that every tenant's I/O share holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.io import Transfer, finish_probe, probe_file, start_probe
from milabench_ng.model.files import nearest
from milabench_ng.records.isolation import IoEvidence
from milabench_ng.run.execution.waiting import in_thread

GroupKey = tuple[str, str]
"""Job id and slot."""


async def probe_all(
    groups: Mapping[GroupKey, Group], asked: Mapping[GroupKey, IoEvidence], dataroot: Path
) -> dict[GroupKey, IoEvidence]:
    """Read from the data root's disk in all groups at once, then write to it; return what each achieved.

    ``asked``: the I/O share of each group. Probes only what the kernel limits.
    """
    seen = dict(asked)
    groups = {key: group for key, group in groups.items() if asked[key].method not in ("none", "readers")}
    if not groups:
        return seen
    try:
        with probe_file(nearest(dataroot)) as descriptor:
            reads = {key: asked[key].read_bytes_per_s for key in groups}
            writes = {key: asked[key].write_bytes_per_s for key in groups}
            seen |= await _probe("read", reads, groups, seen, descriptor)
            return seen | await _probe("write", writes, groups, seen, descriptor)
    except OSError as error:
        problem = f"cannot create a file for direct I/O in {dataroot}: {error.strerror}"
        return seen | {key: msgspec.structs.replace(seen[key], problem=problem) for key in groups}


async def _probe(
    what: Transfer,
    rates: Mapping[GroupKey, int | None],
    groups: Mapping[GroupKey, Group],
    seen: Mapping[GroupKey, IoEvidence],
    descriptor: int,
) -> dict[GroupKey, IoEvidence]:
    started = {
        key: start_probe(groups[key], what, bytes_per_s, descriptor)
        for key, bytes_per_s in rates.items()
        if bytes_per_s is not None
    }
    return {
        key: await in_thread(lambda key=key, one=one: finish_probe(one, what, seen[key]))  # type: ignore[misc]
        for key, one in started.items()
    }
