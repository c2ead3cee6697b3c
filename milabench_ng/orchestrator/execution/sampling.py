"""The orchestrator's side of the sampler process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping

from milabench_ng.events import Lines
from milabench_ng.requests import python_command
from milabench_ng.telemetry.messages import AnyReport, Watch, encode
from milabench_ng.telemetry.recorder import Recorder

INTERVAL_S = 0.5
"""Time between two samples."""


class Sampler:
    """A sampler process and its reports."""

    def __init__(self, environ: Mapping[str, str], gpus: Iterable[str]) -> None:
        """Start it with the environment ``environ``; it reads the devices with the UUIDs ``gpus``, and no others."""
        self.recorder = Recorder()
        self._lines = Lines(AnyReport)
        self._process = subprocess.Popen(
            python_command("milabench_ng.telemetry.sampler", "--interval", str(INTERVAL_S), "--gpus", ",".join(gpus)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reports = self._process.stdout.fileno()
        os.set_blocking(self._reports, False)
        asyncio.get_running_loop().add_reader(self._reports, self._receive)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tell(self, order: Watch) -> None:
        """Send it an order; a dead sampler ignores it, and the records lack its samples."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(encode(order))
            self._process.stdin.flush()

    async def close(self) -> None:
        """End it: it exits when its orders end."""
        asyncio.get_running_loop().remove_reader(self._reports)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        while self._process.poll() is None:
            await asyncio.sleep(0.01)
        self._process.stdout.close()

    def _receive(self) -> None:
        chunk = os.read(self._reports, 1 << 16)
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._reports)
        for report in self._lines.feed(chunk):
            self.recorder.feed(report)
