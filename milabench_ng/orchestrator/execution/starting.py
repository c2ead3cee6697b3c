"""Two ways to start a worker with one interface: warm (forked by the worker server) and cold (a new interpreter)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from milabench_ng.catalogue import Catalogue
from milabench_ng.errors import InputError, MnbError
from milabench_ng.fence.interface import FenceEntry
from milabench_ng.requests import (
    MESSAGE_BYTES,
    Answer,
    AnyAnswer,
    AnyRequest,
    DataEstimate,
    DataProgress,
    Describe,
    Described,
    EstimateData,
    Exited,
    Prepare,
    Prepared,
    Refused,
    Serving,
    Spawn,
    Spawned,
    Task,
    python_command,
)

A = TypeVar("A", bound=Answer)


class StartedWorker(NamedTuple):
    """A worker process: its pid, and its exit status once it has ended."""

    pid: int
    ended: asyncio.Future[int]
    """0 to 255, or the negative number of the signal."""


class Starter(Protocol):
    """A way to start a worker."""

    async def start(self, task: Task, commands: int, events: int, log: int) -> StartedWorker:
        """Start ``task`` with the descriptors for commands (read), events (write) and log (write)."""


class WorkerServer:
    """The orchestrator's side of the worker server."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._connection = connection
        self._process = process
        self._answers: dict[int, asyncio.Queue[AnyAnswer]] = {0: asyncio.Queue()}
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._decoder: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)
        self._number = 0
        self.threads = 1
        """Threads of the server after it imported everything."""

    @staticmethod
    async def launch(environ: Mapping[str, str]) -> WorkerServer:
        """Start the server and wait until it has imported everything. ``environ``: the workers' allow-list."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
        process = subprocess.Popen(
            python_command("milabench_ng.worker.server", str(theirs.fileno())),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # One thread: BLAS libraries would start their pools at import, and a fork would lose them.
            env={**environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        theirs.close()
        ours.setblocking(False)
        server = WorkerServer(ours, process)
        asyncio.get_running_loop().add_reader(ours, server._receive)
        answer = await server._answers[0].get()
        if not isinstance(answer, Serving):
            raise MnbError(
                "the worker server ended while it was importing torch and the workloads; see its message above"
            )
        server.threads = answer.threads
        return server

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    async def describe(self, foreign: tuple[str, ...] = ()) -> Catalogue:
        """The catalogue, including the workloads that a profile names by path."""
        return (await self._answer(Described, Describe(id=self._next(), foreign=foreign))).catalogue

    async def estimate(self, sets: tuple[tuple[str, float], ...], dataroot: Path, processes: int) -> DataEstimate:
        """Estimate what preparing data sets takes; ``sets`` are names and scales."""
        request = EstimateData(id=self._next(), sets=sets, dataroot=str(dataroot), processes=processes)
        return await self._answer(DataEstimate, request)

    async def prepare(
        self, name: str, dataroot: Path, scale: float, processes: int
    ) -> AsyncIterator[DataProgress | Prepared]:
        """Prepare a data set; yields its progress, then where it is."""
        request = Prepare(id=self._next(), data_set=name, dataroot=str(dataroot), scale=scale, processes=processes)
        async for answer in self._ask(request):
            if isinstance(answer, DataProgress | Prepared):
                yield answer

    async def start(self, task: Task, commands: int, events: int, log: int) -> StartedWorker:
        """Fork a warm worker."""
        request = Spawn(id=self._next(), task=task)
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ended[request.id] = ended
        return StartedWorker((await self._answer(Spawned, request, commands, events, log)).pid, ended)

    async def close(self) -> None:
        """End the server, which exits when its connection is closed."""
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()
        while self._process.poll() is None:
            await asyncio.sleep(0.01)

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _answer(self, kind: type[A], request: AnyRequest, *descriptors: int) -> A:
        """The answer of this kind to ``request``."""
        async for answer in self._ask(request, *descriptors):
            if isinstance(answer, kind):
                return answer
        raise MnbError("the worker server ended")

    async def _ask(self, request: AnyRequest, *descriptors: int) -> AsyncIterator[AnyAnswer]:
        """The answers to ``request``, up to the final one."""
        queue = self._answers[request.id] = asyncio.Queue()
        socket.send_fds(self._connection, [msgspec.json.encode(request)], descriptors)
        try:
            while True:
                answer = await queue.get()
                if isinstance(answer, Refused):
                    raise InputError(answer.message)
                if isinstance(answer, Exited):
                    raise MnbError(f"the worker server's helper ended with status {answer.status}")
                yield answer
                if isinstance(answer, Described | DataEstimate | Prepared | Spawned):
                    return
        finally:
            del self._answers[request.id]

    def _receive(self) -> None:
        while True:
            try:
                packet = self._connection.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                packet = b""
            if not packet:
                self._lost()
                return
            answer = self._decoder.decode(packet)
            if isinstance(answer, Exited) and answer.id in self._ended:
                self._ended.pop(answer.id).set_result(answer.status)
            elif answer.id in self._answers:
                self._answers[answer.id].put_nowait(answer)

    def _lost(self) -> None:
        """Handle the server's death, which (PR_SET_PDEATHSIG) also ends all its workers."""
        asyncio.get_running_loop().remove_reader(self._connection)
        for identity, queue in self._answers.items():
            queue.put_nowait(Exited(id=identity, status=-signal.SIGKILL))
        for ended in self._ended.values():
            ended.set_result(-signal.SIGKILL)
        self._ended.clear()


def check_threads(threads: int) -> None:
    """Refuse to fork a server with more than one thread: a fork copies the locks of the others, but not the others.

    Raises MnbError.
    """
    if threads != 1:
        raise MnbError(
            f"the worker server has {threads} threads after importing torch and the workloads, and only one with a "
            "single thread can be forked safely: a workload or data set of another package starts threads when it is "
            "imported. Use --start cold."
        )


class ColdStarter:
    """Starts a new interpreter for every launch, through the entry shim."""

    async def start(self, task: Task, commands: int, events: int, log: int) -> StartedWorker:
        """Spawn the shim, which enters the fence and becomes the worker."""
        worker = python_command("milabench_ng.worker.cold", repr(task.requested_s))
        entry = msgspec.convert(task.seats[0].entry, FenceEntry)
        argv = entry.command(worker, descriptors=5, last=len(task.seats) == 1)
        standard_input = os.memfd_create("mnb-task")
        os.write(standard_input, msgspec.json.encode(task))
        os.lseek(standard_input, 0, os.SEEK_SET)
        # Above 9, so that no dup2 below overwrites a descriptor that is still needed.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (standard_input, log, log, commands, events)]
        pid = os.posix_spawn(
            sys.executable,
            argv,
            task.environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(high)],
            setsigmask=(),
        )
        for end in (standard_input, *high):
            os.close(end)
        return StartedWorker(pid, when_ended(pid))


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
