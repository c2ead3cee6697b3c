"""Runs the worker server while it is needed."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from milabench_ng.fence.entry import FILES, raise_limit, schedule_as_usual
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import GIB
from milabench_ng.run.execution.environment import worker_environment
from milabench_ng.run.execution.worker_server import WorkerServer


class Limit(NamedTuple):
    """A limit of this process (getrlimit(2)), and the least that torch and loader processes can do with."""

    number: int
    wanted: int
    least: int
    what: str
    option: str


LIMITS = (
    Limit(resource.RLIMIT_NOFILE, FILES, 1024, "open files", "-n"),
    Limit(resource.RLIMIT_AS, resource.RLIM_INFINITY, 16 * GIB, "bytes of address space", "-v"),
    Limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY, GIB, "bytes in a file", "-f"),
)


def low_limits() -> Iterator[str]:
    """Raise this process's limits as far as it may; for each that remains too low, what to do."""
    for limit in LIMITS:
        raise_limit(limit.number, limit.wanted)
        soft, _ = resource.getrlimit(limit.number)
        if resource.RLIM_INFINITY < soft < limit.least:
            yield (
                f"limits: a process may have {soft:,} {limit.what}, but mnb needs {limit.least:,}. Raise the "
                f"limit before you start mnb (ulimit {limit.option}, or in the service that starts it)"
            )


def poor_scheduling() -> Iterator[str]:
    """Leave a scheduling class or niceness that was inherited, as tenants do; what to know of one that remains."""
    schedule_as_usual()
    nice, policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    if nice > 0 or policy in (os.SCHED_BATCH, os.SCHED_IDLE):
        name = {os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}.get(policy, "usual")
        yield (
            f"scheduling: mnb has niceness {nice} and the {name} class, and may not leave them. It cannot "
            "watch its tenants while other programs are busy, and adds a comparability warning. Start it "
            "without nice or chrt"
        )


@asynccontextmanager
async def serving(
    stage: Callable[[str], None], environment: Mapping[str, str] | None = None
) -> AsyncIterator[WorkerServer]:
    """Run a worker server; ``stage`` is told that its start takes a while.

    Without an ``environment``, that of workers with the user's libraries: for questions, where nothing is measured.

    Raises InputError for limits that are too low.
    """
    for reason in low_limits():
        raise InputError(reason)
    stage("importing torch and the workloads")
    server = await WorkerServer.launch(environment or worker_environment(os.environ, {}, ("LD_LIBRARY_PATH",))[0])
    try:
        yield server
    finally:
        await server.close()
