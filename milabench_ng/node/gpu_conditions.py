"""The settings and the state of a GPU; part of the conditions under which a batch ran."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from milabench_ng.model.bounds import Spread

THROTTLE_REASONS = ("sw_power_cap", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake")
"""What holds clocks down; a vendor's own reasons are counted under these."""
FAULTS = ("sw_thermal", "hw_thermal", "hw_power_brake")
"""Throttle reasons that are faults of the node or its cooling; the power cap is normal at full load."""


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


def held_down(telemetry: Mapping[str, Spread]) -> dict[str, float]:
    """The share of the window for which each reason held the clocks down, 0 to 1, by the counters that were sampled."""
    seen = {reason: telemetry.get(f"{reason}_s") for reason in THROTTLE_REASONS}
    return {
        reason: (spread.max - spread.min) / spread.span_s
        for reason, spread in seen.items()
        if spread is not None and spread.span_s > 0
    }
