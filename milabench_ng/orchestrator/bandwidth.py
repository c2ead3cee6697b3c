"""Shows before a batch that the I/O share of every tenant holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.io import finish_probe, nearest, probe_file, start_probe
from milabench_ng.records.isolation import IoEvidence

Key = tuple[str, int]
"""Job id and device."""


async def probe_all(groups: Mapping[Key, Group], asked: IoEvidence, dataroot: Path) -> dict[Key, IoEvidence]:
    """Read from the disk of the data root in all groups at the same time; what each got.

    A share that nothing enforces, or that limits writes only, is not probed.
    """
    if asked.method == "none" or asked.read_bytes_per_s is None:
        return dict.fromkeys(groups, asked)
    try:
        with probe_file(nearest(dataroot)) as descriptor:
            started = {key: start_probe(group, asked.read_bytes_per_s, descriptor) for key, group in groups.items()}
            return {key: await asyncio.to_thread(finish_probe, one, asked) for key, one in started.items()}
    except OSError as error:
        problem = f"no file for direct I/O can be made in {dataroot}: {error.strerror}"
        return dict.fromkeys(groups, msgspec.structs.replace(asked, problem=problem))
