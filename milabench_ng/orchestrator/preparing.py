"""Data sets made ready before a run, outside the fence and before any clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from milabench_ng.catalogue import Catalogue
from milabench_ng.errors import MnbError
from milabench_ng.orchestrator.caching import Files, list_files
from milabench_ng.orchestrator.starting import WorkerServer
from milabench_ng.plan import Plan
from milabench_ng.requests import Estimated, Place, Prepared, Progress

Needed = tuple[str, float]
"""A data set and its scale."""


def needed(plan: Plan, catalogue: Catalogue) -> tuple[Needed, ...]:
    """The data sets that the launches of ``plan`` read, each once."""
    pairs = ((catalogue.workloads[launch.workload].data, launch.data_scale) for launch in plan.launches)
    return tuple(dict.fromkeys((name, scale) for name, scale in pairs if name is not None))


async def prepare_all(
    wanted: Iterable[Needed],
    server: WorkerServer,
    dataroot: Path,
    tell: Callable[[Estimated | Progress | Prepared], None],
) -> Mapping[Needed, Files]:
    """Have every data set of ``wanted`` on disk, on all cores that this process may use; ``tell`` hears how it goes."""
    processes = len(os.sched_getaffinity(0))
    ready: dict[Needed, Files] = {}
    for name, scale in wanted:
        place: Place | None = None
        async for answer in server.prepare(name, dataroot, scale, processes):
            tell(answer)
            if isinstance(answer, Prepared):
                place = answer.place
        if place is None:
            raise MnbError(f"data set {name!r}: the preparation ended without a result")
        ready[name, scale] = list_files(place)
    return ready
