"""Samples load, memory, temperature, clocks and power from AMD SMI.

What a device does not support is found out once, at the start, and left out from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from milabench_ng.model.units import MIB
from milabench_ng.node.drivers.amd_smi.metrics import HeldDown, read_metrics, values
from milabench_ng.node.drivers.amd_smi.session import GpuReader, number
from milabench_ng.node.drivers.interface import BOARD

_Read = Callable[[GpuReader], float | None]


def _memory(reader: GpuReader) -> float | None:
    used: int | None = reader.ask("memory_used_mib", "gpu_memory_usage", reader.module.AmdSmiMemoryType.VRAM)
    return None if used is None else used / MIB


def _load(reader: GpuReader) -> float | None:
    percent: float | None = number(reader.ask("utilization_pct", "gpu_activity"), "gfx_activity")
    return percent


_OWN: dict[str, _Read] = {"memory_used_mib": _memory, "utilization_pct": _load}


class DeviceMeter:
    """The working reads of a device itself, which may be a partition."""

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        first = {name: read(reader) for name, read in _OWN.items()}
        for name, value in first.items():
            reader.note(name, {name: value})
        self._reads = {name: read for name, read in _OWN.items() if name not in reader.unsupported}
        self.unsupported = reader.unsupported

    def read(self) -> dict[str, float | None]:
        return {name: read(self._reader) for name, read in self._reads.items()}


class BoardMeter:
    """The working values of one physical GPU, which come in one call."""

    def __init__(self, reader: GpuReader, held_down: HeldDown) -> None:
        self._reader = reader
        self._held_down = held_down
        first = self._all()
        reader.note("metrics", first)
        self._names = [name for name in first if name not in reader.unsupported]
        self.unsupported = reader.unsupported

    def read(self) -> dict[str, float | None]:
        now = self._all()
        return {name: now[name] for name in self._names}

    def _all(self) -> dict[str, float | None]:
        metrics = read_metrics(self._reader)
        held = {f"{reason}_s": seconds for reason, seconds in self._held_down.seconds(metrics).items()}
        return {**dict.fromkeys(BOARD), **values(metrics), **held}
