"""Prepares datasets before a run, outside the fence and all timing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from milabench_ng.model.catalogue import Catalogue, Scalar
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.plan import Plan
from milabench_ng.model.units import format_bytes
from milabench_ng.run.execution.caching import PreparedFiles, list_files
from milabench_ng.run.execution.waiting import in_thread
from milabench_ng.run.execution.worker_server import WorkerServer
from milabench_ng.worker.requests import DataEstimate, DataProgress, Prepared, ReadyDataset

Needed = tuple[str, float]
"""A dataset and its scale."""


def needed(plan: Plan, catalogue: Catalogue) -> tuple[Needed, ...]:
    """The datasets that the launches of ``plan`` read, without duplicates."""
    return read_by(((one.workload, one.arguments, one.data_scale) for one in plan.launches), catalogue)


def read_by(work: Iterable[tuple[str, Mapping[str, Scalar | None], float]], catalogue: Catalogue) -> tuple[Needed, ...]:
    """The datasets that workloads with these options and this data scale read, without duplicates."""
    pairs = ((catalogue.workloads[name].data_set(options), scale) for name, options, scale in work)
    return tuple(dict.fromkeys((name, scale) for name, scale in pairs if name is not None))


def require_space(estimated: DataEstimate, dataroot: Path) -> None:
    """Raise InputError if what must be generated does not fit. Pure."""
    needed_bytes = sum(effort.bytes for effort in estimated.efforts)
    if needed_bytes > estimated.free_bytes:
        sets = ", ".join(
            f"{effort.name} (scale {effort.scale:g}) {format_bytes(effort.bytes)}" for effort in estimated.efforts
        )
        raise InputError(
            f"the datasets need {format_bytes(needed_bytes)} in {dataroot}, where only "
            f"{format_bytes(estimated.free_bytes)} are free: {sets}. Free some space, choose another data root "
            "with -d, or make the sets smaller with --data-scale"
        )


async def prepare_all(
    wanted: Iterable[Needed],
    server: WorkerServer,
    dataroot: Path,
    tell: Callable[[DataEstimate | DataProgress | Prepared], None],
) -> Mapping[Needed, PreparedFiles]:
    """Prepare every dataset of ``wanted`` on disk, using all cores this process may use; ``tell`` gets the progress.

    ``tell`` first gets the estimate for all of them. Raises InputError before anything is generated if the disk is too
    small.
    """
    processes = len(os.sched_getaffinity(0))
    wanted = tuple(wanted)
    estimated = await server.estimate(wanted, dataroot, processes)
    require_space(estimated, dataroot)
    if estimated.efforts:
        tell(estimated)
    ready: dict[Needed, PreparedFiles] = {}
    for name, scale in wanted:
        place: ReadyDataset | None = None
        async for answer in server.prepare(name, dataroot, scale, processes):
            tell(answer)
            if isinstance(answer, Prepared):
                place = answer.place
        if place is None:
            raise MnbError(f"dataset {name!r}: the preparation ended without a result")
        ready[name, scale] = await in_thread(partial(list_files, place))
    return ready
