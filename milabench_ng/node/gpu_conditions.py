"""The settings and the state of a GPU, as NVML tells them; part of the conditions under which a batch ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from milabench_ng.model.bounds import Spread
from milabench_ng.node.gpus import Gpu, GpuReader

# Numbers of nvml.h: they are its binary interface.
_SM, _MEMORY = 1, 2
_DIE = 0
_CORRECTED, _UNCORRECTED = 0, 1
_SINCE_DRIVER_LOAD = 0
THROTTLE_FIELDS = {
    "sw_power_cap": 74,
    "sync_boost": 76,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
_MEMORY_TEMPERATURE_FIELD = 82
FAULTS = ("sw_thermal", "hw_thermal", "hw_power_brake")
"""Throttle reasons that are faults of the node or its cooling; the power cap is normal at full load."""
_LINK_FIELDS = {
    "pcie_replays": 94,
    "pcie_fatal": 180,
    "nvlink_replays": 52,
    "nvlink_recoveries": 59,
    "nvlink_crc": 38,
}
_MOST_NVLINKS = 18


class GpuSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a GPU. Power in watts, clocks in MHz."""

    pci_bus_id: str
    vbios: str | None
    power_limit_w: float | None
    default_power_limit_w: float | None
    enforced_power_limit_w: float | None
    """The lowest of all limits in force."""
    max_sm_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    application_sm_clock_mhz: int | None
    application_memory_clock_mhz: int | None
    ecc: bool | None
    ecc_pending: bool | None
    """ECC mode after the next reset."""
    mig_mode: bool | None
    persistence_mode: bool | None
    max_pcie_generation: int | msgspec.UnsetType | None = msgspec.UNSET
    """What GPU and slot can do together; omitted in records of earlier versions, like the next."""
    max_pcie_width: int | msgspec.UnsetType | None = msgspec.UNSET


class GpuLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of a GPU's links since the driver was loaded, and how many NVLinks are up."""

    pcie_replays: float | None
    pcie_fatal: float | None
    nvlink_replays: float | None
    nvlink_recoveries: float | None
    nvlink_crc: float | None
    nvlinks: int | None


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """The state and counters of a GPU."""

    power_w: float | None
    energy_mj: int | None
    """Energy since the driver was loaded; updated every 100 ms."""
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    memory_temperature_c: float | None
    reasons: int | None
    """Bits of what holds the clocks down now (NVML clocks event reasons)."""
    throttled_ns: dict[str, float | None]
    """Time for which the clocks were held down so far, by reason."""
    ecc_corrected: int | None
    """Since the driver was loaded, like the next."""
    ecc_uncorrected: int | None
    remapped_rows: tuple[int, ...] | None
    """Corrected, uncorrected, pending (0 or 1), failed (0 or 1)."""
    pcie_generation: int | None
    """Drops when the GPU is idle."""
    pcie_width: int | None
    foreign_pids: tuple[int, ...] | None
    """Compute processes that are not ours, with NVML's pids: in a container these may be the host's."""
    links: GpuLinks | msgspec.UnsetType | None = msgspec.UNSET
    """Omitted in records of earlier versions."""


def read_gpu_settings(gpu: Gpu, reader: GpuReader) -> GpuSettings:
    ecc = reader.ask("ecc", "EccMode") or (None, None)
    mig = reader.ask("mig_mode", "MigMode") or (None, None)
    return GpuSettings(
        pci_bus_id=gpu.pci_bus_id,
        vbios=reader.ask("vbios", "VbiosVersion"),
        power_limit_w=_thousandth(reader.ask("power_limit_w", "PowerManagementLimit")),
        default_power_limit_w=_thousandth(reader.ask("default_power_limit_w", "PowerManagementDefaultLimit")),
        enforced_power_limit_w=_thousandth(reader.ask("enforced_power_limit_w", "EnforcedPowerLimit")),
        max_sm_clock_mhz=reader.ask("max_sm_clock_mhz", "MaxClockInfo", _SM),
        max_memory_clock_mhz=reader.ask("max_memory_clock_mhz", "MaxClockInfo", _MEMORY),
        application_sm_clock_mhz=reader.ask("application_sm_clock_mhz", "ApplicationsClock", _SM),
        application_memory_clock_mhz=reader.ask("application_memory_clock_mhz", "ApplicationsClock", _MEMORY),
        ecc=_truth(ecc[0]),
        ecc_pending=_truth(ecc[1]),
        mig_mode=_truth(mig[0]),
        persistence_mode=_truth(reader.ask("persistence_mode", "PersistenceMode")),
        max_pcie_generation=reader.ask("max_pcie_generation", "MaxPcieLinkGeneration"),
        max_pcie_width=reader.ask("max_pcie_width", "MaxPcieLinkWidth"),
    )


def read_gpu_state(reader: GpuReader, own_pids: Collection[int]) -> GpuState:
    fields = reader.fields({**THROTTLE_FIELDS, **_LINK_FIELDS, "memory_temperature_c": _MEMORY_TEMPERATURE_FIELD})
    processes = reader.ask("foreign_pids", "ComputeRunningProcesses")
    return GpuState(
        power_w=_thousandth(reader.ask("power_w", "PowerUsage")),
        energy_mj=reader.ask("energy_mj", "TotalEnergyConsumption"),
        sm_clock_mhz=reader.ask("sm_clock_mhz", "ClockInfo", _SM),
        memory_clock_mhz=reader.ask("memory_clock_mhz", "ClockInfo", _MEMORY),
        temperature_c=reader.ask("temperature_c", "Temperature", _DIE),
        memory_temperature_c=fields["memory_temperature_c"],
        reasons=reader.ask("reasons", "CurrentClocksEventReasons"),
        throttled_ns={name: fields[name] for name in THROTTLE_FIELDS},
        ecc_corrected=reader.ask("ecc_corrected", "TotalEccErrors", _CORRECTED, _SINCE_DRIVER_LOAD),
        ecc_uncorrected=reader.ask("ecc_uncorrected", "TotalEccErrors", _UNCORRECTED, _SINCE_DRIVER_LOAD),
        remapped_rows=reader.ask("remapped_rows", "RemappedRows"),
        pcie_generation=reader.ask("pcie_generation", "CurrPcieLinkGeneration"),
        pcie_width=reader.ask("pcie_width", "CurrPcieLinkWidth"),
        foreign_pids=None if processes is None else tuple(sorted({p.pid for p in processes} - set(own_pids))),
        links=GpuLinks(**{name: fields[name] for name in _LINK_FIELDS}, nvlinks=_nvlinks(reader)),
    )


def _nvlinks(reader: GpuReader) -> int | None:
    """How many are up; None if the GPU has none, or does not say."""
    states = [reader.ask("nvlinks", "NvLinkState", link) for link in range(_MOST_NVLINKS)]
    known = [state for state in states if state is not None]
    return sum(map(bool, known)) if known else None


def held_down(telemetry: Mapping[str, Spread]) -> dict[str, float]:
    """The share of the window for which each reason held the clocks down, 0 to 1, by the counters that were sampled."""
    seen = {reason: telemetry.get(f"{reason}_s") for reason in THROTTLE_FIELDS}
    return {
        reason: (spread.max - spread.min) / spread.span_s
        for reason, spread in seen.items()
        if spread is not None and spread.span_s > 0
    }


def _thousandth(number: int | None) -> float | None:
    return None if number is None else number / 1000


def _truth(number: Any) -> bool | None:
    return None if number is None else bool(number)
