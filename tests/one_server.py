"""One worker server for many runs and questions in this process: another would import torch to say the same."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from milabench_ng.cli import call
from milabench_ng.node import foreign_load
from milabench_ng.records.proof import CodeProof
from milabench_ng.run.execution import pacing
from milabench_ng.run.execution.server_link import Link
from milabench_ng.run.execution.worker_server import WorkerServer


@contextmanager
def without_pauses() -> Iterator[None]:
    """One burst of the host pace instead of five with pauses between them, and no look for other programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "BURSTS", 1)
        patch.setattr(foreign_load, "_LOOK_S", 0.0)
        yield


class Done(NamedTuple):
    """What a command left, under the names of `subprocess`."""

    returncode: int
    stdout: str
    stderr: str


class Lent:
    """The server's process as one of many runs knows it: a run may lose it, and waits for no end at its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid, self.wait = process.pid, process.wait
        self._process = process

    def poll(self) -> int:
        """As if it had ended."""
        return 0

    def kill(self) -> None:
        """The next run finds it gone."""
        self._process.kill()
        self._process.wait()


Inspected = dict[tuple[tuple[str, ...] | None, int | None], CodeProof]
"""What a server found of its code, by what was asked."""


class Remembering(WorkerServer):
    """What a run knows of the server. Its code is read once for all runs, none of which changes it: half a second."""

    inspected: Inspected

    async def inspect(self, wheels: tuple[str, ...] | None, largest: int | None = None) -> CodeProof:
        """As it was found first."""
        asked = (wheels, largest)
        if asked not in self.inspected:
            self.inspected[asked] = await super().inspect(wheels, largest)
        return self.inspected[asked]


class OneServer:
    """A server that the first who asks starts, and that is started again if it was lost."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._threads = 1
        self._start = WorkerServer.launch
        self._inspected: Inspected = {}
        self._thousands = itertools.count(1000, 1000)
        """An answer may come after the run that asked is over."""

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Whoever launches a server has this one."""
        with without_pauses(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(WorkerServer, "launch", self._launch)
            yield

    def mnb(self, *arguments: str, cwd: Path) -> Done:
        """Run ``mnb`` in this process and with this server, where there is no terminal."""
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
            chdir(cwd),
            redirect_stdout(out),
            redirect_stderr(err),
            self.lent(),
        ):
            code = call(arguments)
            return Done(code, *(file.read() for file in (out, err) if not file.seek(0)))

    def close(self) -> None:
        """End it."""
        if self._link:
            self._link.connection.close()
            self._link.process.wait(30)

    async def _launch(self, environ: Mapping[str, str]) -> WorkerServer:
        loop = asyncio.get_running_loop()
        if self._link is None or self._link.process.poll() is not None:
            first = await self._start({**environ, "TMPDIR": tempfile.gettempdir()})  # that of a run goes with it
            assert first._link
            self._link, self._threads = first._link, first.threads
            self._inspected = {}
            loop.remove_reader(self._link.connection)
            loop.remove_reader(self._link.death)
        server, process = Remembering(environ), self._link.process
        server.inspected = self._inspected
        lent: Any = Lent(process)
        server._link = Link(self._link.connection.dup(), lent, os.dup(self._link.death))
        server.threads = self._threads
        server._number = next(self._thousands)
        loop.add_reader(server._link.connection, server._receive)
        loop.add_reader(server._link.death, server._died)
        return server
