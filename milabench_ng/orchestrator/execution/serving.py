"""Runs the worker server while it is needed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from milabench_ng.orchestrator.execution.environment import worker_environment
from milabench_ng.orchestrator.execution.worker_server import WorkerServer


@asynccontextmanager
async def serving(
    stage: Callable[[str], None], environment: Mapping[str, str] | None = None
) -> AsyncIterator[WorkerServer]:
    """Run a worker server; ``stage`` is told that its start takes a while.

    Without an ``environment``, that of workers with the user's libraries: for questions, where nothing is measured.
    """
    stage("importing torch and the workloads")
    server = await WorkerServer.launch(environment or worker_environment(os.environ, {}, ("LD_LIBRARY_PATH",))[0])
    try:
        yield server
    finally:
        await server.close()
