"""The settings and the state of a GPU, as NVML tells them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from milabench_ng.node.drivers.nvml.session import GpuReader
from milabench_ng.node.gpu_conditions import GpuLinks, GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu

# Numbers of nvml.h: they are its binary interface.
_SM, _MEMORY = 1, 2
_DIE = 0
_CORRECTED, _UNCORRECTED = 0, 1
_SINCE_DRIVER_LOAD = 0
_THROTTLE_FIELDS = {
    "sw_power_cap": 74,
    "sync_boost": 76,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
_LINK_FIELDS = {
    "pcie_replays": 94,
    "pcie_fatal": 180,
    "nvlink_replays": 52,
    "nvlink_recoveries": 59,
    "nvlink_crc": 38,
}
_FIELDS = {**_THROTTLE_FIELDS, **_LINK_FIELDS, "memory_temperature_c": 82}
_MOST_NVLINKS = 18


class NvmlBoard:
    """Reads one physical GPU."""

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self.unsupported, self.errors = reader.unsupported, reader.errors

    def settings(self, gpu: Gpu) -> GpuSettings:
        ask = self._reader.ask
        ecc = ask("ecc", "EccMode") or (None, None)
        mig = ask("mig_mode", "MigMode") or (None, None)
        return GpuSettings(
            pci_bus_id=gpu.pci_bus_id,
            vbios=ask("vbios", "VbiosVersion"),
            power_limit_w=_thousandth(ask("power_limit_w", "PowerManagementLimit")),
            default_power_limit_w=_thousandth(ask("default_power_limit_w", "PowerManagementDefaultLimit")),
            enforced_power_limit_w=_thousandth(ask("enforced_power_limit_w", "EnforcedPowerLimit")),
            max_sm_clock_mhz=ask("max_sm_clock_mhz", "MaxClockInfo", _SM),
            max_memory_clock_mhz=ask("max_memory_clock_mhz", "MaxClockInfo", _MEMORY),
            application_sm_clock_mhz=ask("application_sm_clock_mhz", "ApplicationsClock", _SM),
            application_memory_clock_mhz=ask("application_memory_clock_mhz", "ApplicationsClock", _MEMORY),
            ecc=_truth(ecc[0]),
            ecc_pending=_truth(ecc[1]),
            mig_mode=_truth(mig[0]),
            persistence_mode=_truth(ask("persistence_mode", "PersistenceMode")),
            max_pcie_generation=ask("max_pcie_generation", "MaxPcieLinkGeneration"),
            max_pcie_width=ask("max_pcie_width", "MaxPcieLinkWidth"),
        )

    def state(self, own_pids: Collection[int]) -> GpuState:
        ask = self._reader.ask
        fields = self._reader.fields(_FIELDS)
        processes = ask("foreign_pids", "ComputeRunningProcesses")
        return GpuState(
            power_w=_thousandth(ask("power_w", "PowerUsage")),
            energy_mj=ask("energy_mj", "TotalEnergyConsumption"),
            sm_clock_mhz=ask("sm_clock_mhz", "ClockInfo", _SM),
            memory_clock_mhz=ask("memory_clock_mhz", "ClockInfo", _MEMORY),
            temperature_c=ask("temperature_c", "Temperature", _DIE),
            memory_temperature_c=fields["memory_temperature_c"],
            reasons=ask("reasons", "CurrentClocksEventReasons"),
            throttled_ns={name: fields[name] for name in _THROTTLE_FIELDS},
            ecc_corrected=ask("ecc_corrected", "TotalEccErrors", _CORRECTED, _SINCE_DRIVER_LOAD),
            ecc_uncorrected=ask("ecc_uncorrected", "TotalEccErrors", _UNCORRECTED, _SINCE_DRIVER_LOAD),
            remapped_rows=ask("remapped_rows", "RemappedRows"),
            pcie_generation=ask("pcie_generation", "CurrPcieLinkGeneration"),
            pcie_width=ask("pcie_width", "CurrPcieLinkWidth"),
            foreign_pids=None if processes is None else tuple(sorted({p.pid for p in processes} - set(own_pids))),
            links=GpuLinks(**{name: fields[name] for name in _LINK_FIELDS}, nvlinks=_nvlinks(self._reader)),
        )


def _nvlinks(reader: GpuReader) -> int | None:
    """How many are up; None if the GPU has none, or does not say."""
    states = [reader.ask("nvlinks", "NvLinkState", link) for link in range(_MOST_NVLINKS)]
    known = [state for state in states if state is not None]
    return sum(map(bool, known)) if known else None


def _thousandth(number: int | None) -> float | None:
    return None if number is None else number / 1000


def _truth(number: Any) -> bool | None:
    return None if number is None else bool(number)
