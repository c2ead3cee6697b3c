"""The orchestrator's side of the sampler process. Telemetry may fail; the run may not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from milabench_ng.fence.kernel.processes import Family, identify
from milabench_ng.model.bounds import Spread
from milabench_ng.model.events import Lines
from milabench_ng.node.conditions import Conditions
from milabench_ng.records.manifest import IdlePower
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


IDLE_S = 4.0
"""Eight samples; the power that a GPU shows is the mean over a second."""
_PATIENCE_S = 10.0
"""How long the first sample may take: NVML wakes the GPUs of a node without persistence mode."""


async def measure_idle(sampler: Sampler, uuids: Sequence[str]) -> IdlePower | msgspec.UnsetType:
    """The power of the devices with these UUIDs, and of the host. Unset without any."""
    begin_s = time.monotonic()
    while not sampler.recorder.latest("host", HOST_KEY) and time.monotonic() < begin_s + _PATIENCE_S:
        await asyncio.sleep(0.05)
    begin_s = time.monotonic()
    await asyncio.sleep(IDLE_S)
    return idle_power(sampler.recorder, uuids, begin_s, time.monotonic())


def idle_power(recorder: Recorder, uuids: Iterable[str], start_s: float, end_s: float) -> IdlePower | msgspec.UnsetType:
    """What was drawn between two moments, as far as it is known. Pure."""
    host = recorder.spreads("host", HOST_KEY, start_s, end_s)
    gpus = {uuid: recorder.spreads("gpu", uuid, start_s, end_s) for uuid in uuids}
    known = {uuid: watts for uuid, seen in gpus.items() if (watts := _watts(seen.get("energy_j"), seen)) is not None}
    cpu_w = _watts(host.get("cpu_energy_j"), {})
    wall = host.get("wall_w")
    if not known and cpu_w is None and wall is None:
        return msgspec.UNSET
    return IdlePower(seconds=end_s - start_s, gpus_w=known, cpu_w=cpu_w, wall_w=wall.mean if wall else None)


def _watts(counter: Spread | None, seen: dict[str, Spread]) -> float | None:
    """By a counter; without one, the mean of the samples of the power."""
    if counter is not None and counter.span_s > 0 and counter.max > counter.min:
        return (counter.max - counter.min) / counter.span_s
    return seen["power_w"].mean if "power_w" in seen else None
