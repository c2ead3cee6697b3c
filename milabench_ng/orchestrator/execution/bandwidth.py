"""Shows before a batch that the I/O share of every tenant holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.io import Transfer, finish_probe, nearest, probe_file, start_probe
from milabench_ng.records.isolation import IoEvidence

Key = tuple[str, int]
"""Job id and device."""


async def probe_all(groups: Mapping[Key, Group], asked: IoEvidence, dataroot: Path) -> dict[Key, IoEvidence]:
    """Read from the disk of the data root in all groups at the same time, then write to it; what each got.

    Only what the kernel limits is probed.
    """
    seen = dict.fromkeys(groups, asked)
    if asked.method in ("none", "readers"):
        return seen
    try:
        with probe_file(nearest(dataroot)) as descriptor:
            seen = await _probe("read", asked.read_bytes_per_s, groups, seen, descriptor)
            return await _probe("write", asked.write_bytes_per_s, groups, seen, descriptor)
    except OSError as error:
        problem = f"no file for direct I/O can be made in {dataroot}: {error.strerror}"
        return {key: msgspec.structs.replace(one, problem=problem) for key, one in seen.items()}


async def _probe(
    what: Transfer, bytes_per_s: int | None, groups: Mapping[Key, Group], seen: dict[Key, IoEvidence], descriptor: int
) -> dict[Key, IoEvidence]:
    if bytes_per_s is None:
        return seen
    started = {key: start_probe(group, what, bytes_per_s, descriptor) for key, group in groups.items()}
    return {key: await asyncio.to_thread(finish_probe, one, what, seen[key]) for key, one in started.items()}
