"""Samples load, memory, temperature, clocks and power from NVML.

What a device does not support is found out once, at the start, and not queried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milabench_ng.model.units import MIB
from milabench_ng.node.drivers.nvml.session import GpuReader

# Numbers of nvml.h: they are its binary interface.
_SM, _MEMORY = 1, 2
_DIE = 0
_MEMORY_WITHOUT_RESERVE = 0x02000028
"""Version 2 of the memory query: memory that the driver reserves does not count as used, as in nvidia-smi."""
_SECONDS_FIELDS = {"sw_power_cap_s": 74, "sw_thermal_s": 269, "hw_thermal_s": 270, "hw_power_brake_s": 271}
_FIELDS = {**_SECONDS_FIELDS, "memory_temperature_c": 82}

_REASONS = {
    "reason_idle": 0x1,
    "reason_sw_power_cap": 0x4,
    "reason_hw_slowdown": 0x8,
    "reason_sw_thermal": 0x20,
    "reason_hw_thermal": 0x40,
    "reason_hw_power_brake": 0x80,
}
"""Bits of the clocks event reasons, as 0 or 1, so that a mean is the fraction of the samples with that reason."""

_Read = Callable[[GpuReader], Any]

# Of the device itself, which may be a MIG instance.
_OWN: dict[str, _Read] = {
    "memory_used_mib": lambda gpu: _member(
        gpu.ask("memory_used_mib", "MemoryInfo", _MEMORY_WITHOUT_RESERVE), "used", 1 / MIB
    ),
    "utilization_pct": lambda gpu: _member(gpu.ask("utilization_pct", "UtilizationRates"), "gpu"),
}

# Of the board that carries it. The energy counter is the slow one, with 3 to 10 ms per read on Hopper.
_BOARD: dict[str, _Read] = {
    "temperature_c": lambda gpu: gpu.ask("temperature_c", "Temperature", _DIE),
    "power_w": lambda gpu: _scaled(gpu.ask("power_w", "PowerUsage"), 1e-3),
    "energy_j": lambda gpu: _scaled(gpu.ask("energy_j", "TotalEnergyConsumption"), 1e-3),
    "sm_clock_mhz": lambda gpu: gpu.ask("sm_clock_mhz", "ClockInfo", _SM),
    "memory_clock_mhz": lambda gpu: gpu.ask("memory_clock_mhz", "ClockInfo", _MEMORY),
    "pcie_generation": lambda gpu: gpu.ask("pcie_generation", "CurrPcieLinkGeneration"),
    "pcie_width": lambda gpu: gpu.ask("pcie_width", "CurrPcieLinkWidth"),
}


class DeviceMeter:
    """The working reads of a device itself, which may be a MIG instance."""

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self._reads = _working(_OWN, reader)
        self.unsupported = reader.unsupported

    def read(self) -> dict[str, float | None]:
        return {name: read(self._reader) for name, read in self._reads.items()}


class BoardMeter:
    """The working reads of one physical GPU."""

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self._reads = _working(_BOARD, reader)
        self._fields = {name: _FIELDS[name] for name, value in reader.fields(_FIELDS).items() if value is not None}
        self._reasons = self._bits() is not None
        self.unsupported = reader.unsupported

    def read(self) -> dict[str, float | None]:
        values = {name: read(self._reader) for name, read in self._reads.items()}
        fields = self._reader.fields(self._fields) if self._fields else {}
        values |= {name: _scaled(value, 1e-9 if name in _SECONDS_FIELDS else 1) for name, value in fields.items()}
        if self._reasons:
            bits = self._bits()
            values |= {name: None if bits is None else bool(bits & bit) for name, bit in _REASONS.items()}
        return values

    def _bits(self) -> int | None:
        bits: int | None = self._reader.ask("reasons", "CurrentClocksEventReasons")
        return bits


def _working(reads: dict[str, _Read], reader: GpuReader) -> dict[str, _Read]:
    """The supported reads, each tried once. A read that fails for another reason is kept and counts as an error."""
    for read in reads.values():
        read(reader)
    return {name: read for name, read in reads.items() if name not in reader.unsupported}


def _member(answer: Any, name: str, factor: float = 1) -> float | None:
    return None if answer is None else getattr(answer, name) * factor


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
