"""Runs one task inside the fence, in this process or in one for each rank, and reports events."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from typing import NoReturn

import msgspec

from milabench_ng.bench.channel import PipeChannel
from milabench_ng.model.events import Phase
from milabench_ng.worker import ranks
from milabench_ng.worker.discovery import find_workload
from milabench_ng.worker.rank import failure, run_rank
from milabench_ng.worker.requests import Task


def read_task(content: bytes) -> Task:
    """The task of a cold worker."""
    return msgspec.json.decode(content, type=Task)


def run(task: Task, commands: int, events: int, phases: dict[str, float], since: float) -> int:
    """Run ``task`` in this process, which is inside the fence; return its exit status.

    ``phases``: seconds of the finished phases; ``since``: when the last of them ended (monotonic).
    """
    # Inherited by ranks and loaders; the orchestrator triggers it before it kills a hanging launch.
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    channel = PipeChannel(events, commands)
    try:
        if task.unfit is not None:
            channel.send(task.unfit)
            return 1
        definition, _ = find_workload(task.workload)
        if definition.in_ranks(len(task.seats)):
            for name, seconds in phases.items():
                channel.send(Phase(name=name, seconds=seconds))
            return ranks.run(task, channel, definition, since)
        run_rank(task, 0, channel, definition, phases, since)
    except Exception as error:  # noqa: BLE001  # whatever a workload raises becomes the record's cause
        channel.send(failure(error, 0))
        return 1
    return 0


def leave(status: int) -> NoReturn:
    """End this process without tearing torch down. That a stream was closed does not change how the work ended."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, its descriptor closed, itself closed
            stream.flush()
    os._exit(status)
