"""The orchestrator's side of the sampler process. Telemetry may fail; the run may not."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterable, Mapping

import msgspec

from milabench_ng.fence.kernel.processes import Family, identify
from milabench_ng.model.events import Lines
from milabench_ng.node.conditions import Conditions
from milabench_ng.run.execution.waiting import end
from milabench_ng.telemetry.messages import HOST_KEY, AnyReport, Watch, encode
from milabench_ng.telemetry.recorder import Recorder
from milabench_ng.worker.requests import python_command

INTERVAL_S = 0.5
"""Time between two samples."""
CLOSE_S = 2.0
"""How long a sampler may take to end by itself."""
_CHUNK_BYTES = 1 << 16


class Sampler:
    """A sampler process and its reports."""

    def __init__(self, environ: Mapping[str, str], gpus: Iterable[str]) -> None:
        """Start it with the environment ``environ``; it reads the devices with the UUIDs ``gpus``, and no others."""
        self.recorder = Recorder()
        self.problem = ""
        """Why there are no samples any more; empty while there are."""
        self._lines = Lines(AnyReport)
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        self._process = subprocess.Popen(
            python_command(
                environ, "milabench_ng.telemetry.sampler", "--interval", str(INTERVAL_S), "--gpus", ",".join(gpus)
            ),
            stdin=orders,
            stdout=reports,
            env=dict(environ),
            start_new_session=True,
        )
        for theirs in (orders, reports):
            os.close(theirs)
        for ours in (self._orders, self._reports):
            os.set_blocking(ours, False)
        asyncio.get_running_loop().add_reader(self._reports, self._receive)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def families(self) -> tuple[Family, ...]:
        """The process and what it starts, such as a program that reads a meter; none if it is gone."""
        process = identify(self.pid)
        return () if process is None else (Family(process),)

    def with_energy(self, seen: Conditions) -> Conditions:
        """Conditions with what the host used so far: its counters begin again within minutes, and only we see that."""
        return with_energy(seen, self.recorder.latest("host", HOST_KEY))

    def tell(self, order: Watch) -> None:
        """Send it an order; one that it does not take is lost, and the records lack its samples."""
        try:
            os.write(self._orders, encode(order))
        except BrokenPipeError:
            self.problem = self.problem or "the sampler has ended"
        except BlockingIOError:
            self.problem = self.problem or "the sampler takes no orders"

    async def close(self) -> None:
        """End it: it exits when its orders end, or it is killed."""
        asyncio.get_running_loop().remove_reader(self._reports)
        os.close(self._orders)
        await end(self._process, CLOSE_S)
        os.close(self._reports)

    def _receive(self) -> None:
        chunk = os.read(self._reports, _CHUNK_BYTES)
        try:
            for report in self._lines.feed(chunk):
                self.recorder.feed(report)
        except msgspec.DecodeError as error:
            self._give_up(f"the sampler wrote something that is no report: {error}")
        if not chunk:
            self._give_up("the sampler has ended")

    def _give_up(self, problem: str) -> None:
        self.problem = self.problem or problem
        asyncio.get_running_loop().remove_reader(self._reports)


def with_energy(seen: Conditions, sampled: Mapping[str, float]) -> Conditions:
    """Conditions with the energies of a sample of the host, as far as it has them. Pure."""
    cpu_j, wall_j = (sampled.get(name, msgspec.UNSET) for name in ("cpu_energy_j", "wall_energy_j"))
    host = msgspec.structs.replace(seen.host, cpu_energy_j=cpu_j, wall_energy_j=wall_j)
    return msgspec.structs.replace(seen, host=host)
