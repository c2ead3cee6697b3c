"""The settings and the state of a physical GPU, as AMD SMI tells them.

Under the names that all vendors share: ``sm_clock_mhz`` is the clock of the dies that compute, links between GPUs
(``nvlinks``) are those of xGMI, and ``remapped_rows`` counts retired pages of memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from milabench_ng.node.drivers.amd_smi.metrics import HeldDown, read_metrics, values
from milabench_ng.node.drivers.amd_smi.session import GpuReader, number
from milabench_ng.node.gpu_conditions import THROTTLE_REASONS, GpuLinks, GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu

_MEMORY_BLOCK = 1
"""AMDSMI_GPU_BLOCK_UMC."""
_RESERVED, _PENDING, _UNRESERVABLE = 0, 1, 2
"""AMDSMI_MEM_PAGE_STATUS_*."""
_WHOLE = "SPX"


class AmdBoard:
    """Reads one physical GPU, through its only or first device."""

    def __init__(self, reader: GpuReader, held_down: HeldDown) -> None:
        self._reader = reader
        self._held_down = held_down
        self.unsupported, self.errors = reader.unsupported, reader.errors

    def settings(self, gpu: Gpu) -> GpuSettings:
        ask, clocks = self._reader.ask, self._reader.module.AmdSmiClkType
        cap = ask("power_limit_w", "power_cap_info")
        limit = _watts(number(cap, "power_cap"))
        pcie = (ask("max_pcie_generation", "pcie_info") or {}).get("pcie_static")
        blocks = ask("ecc", "gpu_ecc_enabled")
        mode = ask("mig_mode", "gpu_compute_partition")
        return GpuSettings(
            pci_bus_id=gpu.pci_bus_id,
            vbios=(ask("vbios", "gpu_vbios_info") or {}).get("version"),
            power_limit_w=limit,
            default_power_limit_w=_watts(number(cap, "default_power_cap")),
            enforced_power_limit_w=limit,
            max_sm_clock_mhz=number(ask("max_sm_clock_mhz", "clock_info", clocks.GFX), "max_clk"),
            max_memory_clock_mhz=number(ask("max_memory_clock_mhz", "clock_info", clocks.MEM), "max_clk"),
            application_sm_clock_mhz=None,
            application_memory_clock_mhz=None,
            ecc=None if blocks is None else bool(blocks & _MEMORY_BLOCK),
            ecc_pending=None,
            mig_mode=None if mode is None else mode != _WHOLE,
            persistence_mode=None,
            max_pcie_generation=number(pcie, "pcie_interface_version"),
            max_pcie_width=number(pcie, "max_pcie_width"),
        )

    def state(self, own_pids: Collection[int]) -> GpuState:
        metrics = read_metrics(self._reader)
        now, held = values(metrics), self._held_down.seconds(metrics)
        ecc = self._reader.ask("ecc_corrected", "gpu_total_ecc_count")
        processes = self._reader.ask("foreign_pids", "gpu_process_list")
        energy_j = now["energy_j"]
        told: dict[str, Any] = {
            "power_w": now["power_w"],
            "energy_mj": None if energy_j is None else round(energy_j * 1000),
            "sm_clock_mhz": now["sm_clock_mhz"],
            "memory_clock_mhz": now["memory_clock_mhz"],
            "temperature_c": now["temperature_c"],
            "memory_temperature_c": now["memory_temperature_c"],
            "pcie_generation": now["pcie_generation"],
            "pcie_width": now["pcie_width"],
            "reasons": None,  # NVIDIA's bits
        }
        throttled = {reason: _nanoseconds(held.get(reason)) for reason in THROTTLE_REASONS}
        self._reader.note("metrics", {**told, **throttled})
        errors = {
            "ecc_corrected": number(ecc, "correctable_count"),
            "ecc_uncorrected": number(ecc, "uncorrectable_count"),
        }
        self._reader.note("ecc_corrected", errors)
        return GpuState(
            **told,
            **errors,
            throttled_ns=throttled,
            remapped_rows=_retired(self._reader.ask("remapped_rows", "gpu_bad_page_info")),
            foreign_pids=None if processes is None else tuple(sorted({one["pid"] for one in processes} - {*own_pids})),
            links=self._links(metrics),
        )

    def _links(self, metrics: Mapping[str, Any] | None) -> GpuLinks:
        ends: Sequence[str] = (self._reader.ask("nvlinks", "gpu_xgmi_link_status") or {}).get("status", ())
        return GpuLinks(
            pcie_replays=number(metrics, "pcie_replay_count_acc"),
            pcie_fatal=None,
            nvlink_replays=None,
            nvlink_recoveries=None,
            nvlink_crc=None,
            nvlinks=sum(end == "U" for end in ends) if {*ends} & {"U", "D"} else None,
        )


def _retired(pages: Any) -> tuple[int, ...] | None:
    """As rows of NVIDIA: for corrected errors, for uncorrected ones, whether some are pending, or could not be."""
    if not isinstance(pages, list):  # older packages write a sentence if there are none
        return None if pages is None else (0, 0, 0, 0)
    states = [page["status"] for page in pages]
    return (0, states.count(_RESERVED), int(_PENDING in states), int(_UNRESERVABLE in states))


def _watts(microwatts: float | None) -> float | None:
    return None if microwatts is None else microwatts / 1e6


def _nanoseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e9)
