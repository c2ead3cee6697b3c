"""Runs the worker server while it is needed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from milabench_ng.orchestrator.execution.environment import worker_environment
from milabench_ng.orchestrator.execution.worker_server import WorkerServer


@asynccontextmanager
async def serving(stage: Callable[[str], None]) -> AsyncIterator[WorkerServer]:
    """Run a worker server; ``stage`` is told that its start takes a while."""
    stage("importing torch and the workloads")
    environment, _ = worker_environment(os.environ, {})
    server = await WorkerServer.launch(environment)
    try:
        yield server
    finally:
        await server.close()
