"""The orchestrator's side of the worker server: every answer has a time limit, and a lost server is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from milabench_ng.fence.kernel.processes import Family, Process, identify, read_table
from milabench_ng.fence.killing import signal_child
from milabench_ng.model.catalogue import Catalogue
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.plain import whole_json
from milabench_ng.records.proof import CodeProof, DataProof
from milabench_ng.run.execution.server_link import Link, how_ended, open_link
from milabench_ng.run.execution.starting import MachineryError, StartedWorker, require_folder
from milabench_ng.run.execution.waiting import end
from milabench_ng.worker.requests import (
    MESSAGE_BYTES,
    Answer,
    AnyAnswer,
    AnyRequest,
    Asked,
    Checked,
    CheckOptions,
    DataEstimate,
    DataProgress,
    DataRead,
    Describe,
    Described,
    EstimateData,
    Exited,
    InspectCode,
    Inspected,
    Prepare,
    Prepared,
    ReadData,
    Refused,
    Serving,
    Spawn,
    Spawned,
    Task,
    Unable,
)

A = TypeVar("A", bound=Answer)

IMPORT_S = 600.0
"""Limit for the imports of torch and all workloads, from a cold disk."""
ANSWER_S = 600.0
"""Limit between two answers about workloads and data."""
SPAWN_S = 30.0
"""Limit for a fork, for the word that a worker that is gone has ended, and for a process that somebody has stopped."""
CHECK_S = 1.0
"""How often a process that owes an answer is looked at."""
CLOSE_S = 2.0
"""How long the server may take to end by itself."""
RESTARTS = 3
"""How often a session replaces a lost server."""


class WorkerServer:
    """Starts warm workers, and answers questions that take their imports."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """``environ``: the workers' allow-list."""
        self._environ = environ
        self._decoder: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)
        self._number = 0
        self._starts = 0
        self._link: Link | None = None
        self._lost = ""
        """Why there is no server."""
        self._given_up: list[subprocess.Popen[bytes]] = []
        self._answers: dict[int, asyncio.Queue[AnyAnswer | MachineryError]] = {}
        self._ended: dict[int, asyncio.Future[int]] = {}
        self.threads = 1
        """Threads of the server after it imported everything."""

    @staticmethod
    async def launch(environ: Mapping[str, str]) -> WorkerServer:
        """Start a server and wait until it has imported everything."""
        server = WorkerServer(environ)
        try:
            await server._begin()
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def pids(self) -> tuple[int, ...]:
        """The server, if there is one now."""
        return (self._link.process.pid,) if self._link else ()

    @property
    def families(self) -> tuple[Family, ...]:
        """What is below the server, which adopts orphans."""
        return tuple(Family(server, itself=False) for pid in self.pids if (server := identify(pid)))

    async def ready(self) -> str:
        """Replace a server that was lost; returns why. Raises MachineryError if that has happened too often."""
        lost = self._lost
        if lost:
            if self._starts > RESTARTS:
                raise MachineryError(f"{lost}: lost {self._starts} times, not replaced again. Continue with mnb resume")
            await self._begin()
            check_threads(self.threads)
        return lost

    async def describe(self, asked: tuple[str, ...] | None) -> Catalogue:
        """The catalogue; of other packages, with the workloads that are ``asked`` for, None for all."""
        return (await self._answer(Described, Describe(id=self._next(), asked=asked))).catalogue

    async def check(self, tests: tuple[Asked, ...]) -> None:
        """Raise InputError for a test whose options do not go together."""
        await self._answer(Checked, CheckOptions(id=self._next(), tests=tests))

    async def estimate(self, sets: tuple[tuple[str, float], ...], dataroot: Path, processes: int) -> DataEstimate:
        """Estimate what preparing datasets takes; ``sets`` are names and scales."""
        request = EstimateData(id=self._next(), sets=sets, dataroot=str(dataroot), processes=processes)
        return await self._answer(DataEstimate, request)

    async def prepare(
        self, name: str, dataroot: Path, scale: float, processes: int
    ) -> AsyncIterator[DataProgress | Prepared]:
        """Prepare a dataset; yields its progress, then where it is."""
        request = Prepare(id=self._next(), data_set=name, dataroot=str(dataroot), scale=scale, processes=processes)
        async for answer in self._ask(request):
            if isinstance(answer, DataProgress | Prepared):
                yield answer

    async def inspect(self, wheels: tuple[str, ...] | None, largest: int | None = None) -> CodeProof:
        """The code that it runs; the files of ``wheels``, or with None of all, are compared with their checksums."""
        return (await self._answer(Inspected, InspectCode(id=self._next(), wheels=wheels, largest=largest))).code

    async def read(self, name: str, dataroot: Path, scale: float, processes: int) -> DataProof:
        """Have every byte of a prepared dataset read."""
        request = ReadData(id=self._next(), data_set=name, dataroot=str(dataroot), scale=scale, processes=processes)
        return (await self._answer(DataRead, request)).data

    async def start(self, task: Task, commands: int, events: int, log: int) -> StartedWorker:
        """Fork a warm worker."""
        request = Spawn(id=self._next(), task=task)
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ended[request.id] = ended
        try:
            spawned = await self._answer(Spawned, request, commands, events, log)
        except BaseException:
            self._ended.pop(request.id, None)
            if not ended.cancel():
                ended.exception()  # what is raised here says it
            raise
        worker = Process(spawned.pid, spawned.start)
        self._follow(worker, request.id)
        return StartedWorker(worker, Family(worker), ended)

    async def close(self) -> None:
        """End the server, which exits when its connection is closed."""
        for process in self._given_up:
            await end(process, CLOSE_S)
        if self._link is not None:
            await end(self._unlink().process, CLOSE_S)

    async def _begin(self) -> None:
        """Start the process and wait until it serves."""
        require_folder()
        self._starts += 1
        self._lost = ""
        self._answers[0] = asyncio.Queue()
        self._link = link = open_link(self._environ)
        loop = asyncio.get_running_loop()
        loop.add_reader(link.connection, self._receive)
        loop.add_reader(link.death, self._died)
        try:
            answer = await self._next_answer(0, IMPORT_S)
        except MachineryError as error:
            raise MachineryError(f"{error} while importing torch and the workloads. See its message above") from None
        if isinstance(answer, Serving):
            self.threads = answer.threads

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
        limit_s = SPAWN_S if isinstance(request, Spawn) else ANSWER_S
        self._answers[request.id] = asyncio.Queue()
        try:
            self._send(request, descriptors)
            while True:
                answer = await self._next_answer(request.id, limit_s)
                if isinstance(answer, Refused):
                    raise InputError(answer.message)
                if isinstance(answer, Unable):
                    raise MachineryError(answer.message)
                if isinstance(answer, Exited):
                    raise MachineryError(f"the worker server's helper {how_ended(answer.status)}")
                yield answer
                if isinstance(answer, Described | Checked | DataEstimate | Prepared | Inspected | DataRead | Spawned):
                    return
        finally:
            del self._answers[request.id]

    async def _next_answer(self, identity: int, limit_s: float) -> AnyAnswer:
        end_s, stopped_s = time.monotonic() + limit_s, 0.0
        while True:
            try:
                async with asyncio.timeout(CHECK_S):  # wait_for would swallow a signal that comes with the answer
                    answer = await self._answers[identity].get()
            except TimeoutError:
                stopped = stopped_at_or_below(self.pids)
                stopped_s = stopped_s + CHECK_S if stopped else 0.0
                if time.monotonic() > end_s:
                    raise self._lose(f"the worker server did not answer within {limit_s:g} s") from None
                if stopped_s > SPAWN_S:
                    raise self._lose(f"the worker server did not continue within {SPAWN_S:g} s: {stopped}") from None
            else:
                if isinstance(answer, MachineryError):
                    raise answer
                return answer

    def _send(self, request: AnyRequest, descriptors: tuple[int, ...]) -> None:
        if self._link is None:
            raise MachineryError(self._lost)
        try:
            socket.send_fds(self._link.connection, [whole_json(request)], descriptors)
        except (BlockingIOError, ConnectionError) as error:
            raise self._lose(f"the worker server does not accept requests ({error.strerror})") from None

    def _receive(self) -> None:
        """Take all packets that are there. The server's death is seen by its process, not by its connection, of which
        its helpers have a copy."""
        while self._link is not None:
            try:
                packet = self._link.connection.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                packet = b""
            if not packet:
                asyncio.get_running_loop().remove_reader(self._link.connection)
                return
            answer = self._decoder.decode(packet)
            if isinstance(answer, Exited) and answer.id in self._ended:
                self._ended.pop(answer.id).set_result(answer.status)
            elif answer.id in self._answers:
                self._answers[answer.id].put_nowait(answer)

    def _follow(self, worker: Process, identity: int) -> None:
        """See a worker end even if the server does not say so: then the server hangs."""
        try:
            process = os.pidfd_open(worker.pid)
        except ProcessLookupError:
            return  # it was waited for, and the word of it is on its way
        if identify(worker.pid) != worker:
            os.close(process)
            return  # the same, and its pid is another's
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(process)
            os.close(process)
            loop.call_later(SPAWN_S, overdue)

        def overdue() -> None:
            if identity in self._ended:
                self._lose(f"the worker server did not say within {SPAWN_S:g} s how a worker ended")

        loop.add_reader(process, gone)

    def _died(self) -> None:
        if self._link is not None:
            self._receive()
            self._lose(f"the worker server {how_ended(self._link.process.wait())}")

    def _lose(self, why: str) -> MachineryError:
        """Give the server up, and with it (PR_SET_PDEATHSIG) all its workers; whoever waits for it is told."""
        if self._link is not None:
            self._lost = why
            self._given_up.append(self._unlink().process)
            signal_child(self._given_up[-1], signal.SIGKILL)
        for queue in self._answers.values():
            queue.put_nowait(MachineryError(why))
        for ended in self._ended.values():
            ended.set_exception(MachineryError(f"{why}, and its workers with it"))
        self._ended.clear()
        return MachineryError(why)

    def _unlink(self) -> Link:
        """Close what connects us with the server."""
        assert self._link is not None
        link, self._link = self._link, None
        for descriptor in (link.connection.fileno(), link.death):
            asyncio.get_running_loop().remove_reader(descriptor)
        link.connection.close()
        os.close(link.death)
        return link


def stopped_at_or_below(pids: Iterable[int]) -> str:
    """Which of these processes, or of those below them, a signal has stopped; empty if none has."""
    table = read_table()
    families = [Family(Process(pid, table[pid].start)) for pid in pids if pid in table]
    stopped = (one.pid for family in families for one in family.members(table) if table[one.pid].state == "T")
    return next((f"process {pid} is stopped (SIGSTOP)" for pid in stopped), "")


def check_threads(threads: int) -> None:
    """Refuse to fork a server with more than one thread: a fork copies the locks of the others, but not the others.

    Raises MnbError.
    """
    if threads != 1:
        raise MnbError(
            f"the worker server has {threads} threads after importing torch and the workloads, and only one with a "
            "single thread can be forked safely. Use --cold-start."
        )
