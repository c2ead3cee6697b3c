"""Measures what the node draws before anything works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec

from milabench_ng.model.bounds import Spread
from milabench_ng.records.manifest import IdlePower
from milabench_ng.run.execution.sampling import Sampler
from milabench_ng.telemetry.messages import HOST_KEY
from milabench_ng.telemetry.recorder import Recorder

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
