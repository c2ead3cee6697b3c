"""Two ways to start a worker with one interface: warm (`WorkerServer`) and cold (a new interpreter)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from typing import NamedTuple, Protocol

import msgspec

from milabench_ng.fence.interface import FenceEntry
from milabench_ng.fence.kernel.processes import Family, Process, identify
from milabench_ng.model.errors import MnbError
from milabench_ng.model.files import no_current_folder
from milabench_ng.model.plain import whole_json
from milabench_ng.worker.requests import Task, python_command


class MachineryError(MnbError):
    """What starts the workers failed. It says nothing about what they were to do."""


def require_folder() -> None:
    """Raise MachineryError if the current folder was deleted: no Python that starts in it can import torch."""
    gone = no_current_folder()
    if gone:
        raise MachineryError(gone)


class StartedWorker(NamedTuple):
    """A worker process, and its exit status once it has ended."""

    process: Process
    family: Family
    """What all processes of the launch belong to."""
    ended: asyncio.Future[int]
    """0 to 255, or the negative number of the signal; `MachineryError` if nobody is left to say."""


class Starter(Protocol):
    """A way to start a worker."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Its own processes."""

    @property
    def families(self) -> tuple[Family, ...]:
        """Whom the workers that it started belong to, and their orphans."""

    async def ready(self) -> str:
        """Be able to start workers; returns what had to be mended for it, or nothing. Raises MachineryError."""

    async def start(self, task: Task, commands: int, events: int, log: int) -> StartedWorker:
        """Start ``task`` with the descriptors for commands (read), events (write) and log (write).

        Raises MachineryError.
        """


class ColdStarter:
    """Starts a new interpreter for every launch, through the entry shim."""

    @property
    def pids(self) -> tuple[int, ...]:
        """None: every worker is a launch's."""
        return ()

    @property
    def families(self) -> tuple[Family, ...]:
        """None: this process adopts their orphans."""
        return ()

    async def ready(self) -> str:
        """Nothing has to be there."""
        return ""

    async def start(self, task: Task, commands: int, events: int, log: int) -> StartedWorker:
        """Spawn the shim, which enters the fence and becomes the worker."""
        require_folder()
        worker = python_command(task.environment, "milabench_ng.worker.cold", repr(task.requested_s))
        entry = msgspec.convert(task.seats[0].entry, FenceEntry)
        argv = entry.command(worker, descriptors=5, last=len(task.seats) == 1)
        standard_input = os.memfd_create("mnb-task")
        os.write(standard_input, whole_json(task))
        os.lseek(standard_input, 0, os.SEEK_SET)
        # Above 9, so that no dup2 below overwrites a descriptor that is still needed.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (standard_input, log, log, commands, events)]
        try:
            pid = os.posix_spawn(
                sys.executable,
                argv,
                task.environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(high)],
                setsigmask=(),
            )
        except OSError as error:
            raise MachineryError(f"no worker can be started: {error.strerror}") from error
        finally:
            for end in (standard_input, *high):
                os.close(end)
        process = identify(pid)
        assert process, "a child is listed until it is waited for"
        return StartedWorker(process, entry.door.inside if entry.door else Family(process), when_ended(pid))


def when_ended(pid: int) -> asyncio.Future[int]:
    """A future of the exit status of a child of this process."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    process = os.pidfd_open(pid)

    def reap() -> None:
        loop.remove_reader(process)
        os.close(process)
        _, status = os.waitpid(pid, 0)
        ended.set_result(os.waitstatus_to_exitcode(status))

    loop.add_reader(process, reap)
    return ended
