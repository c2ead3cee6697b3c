"""What one call tells of a physical GPU: `amdsmi_get_gpu_metrics_info` (amdsmi.h, amdsmi_gpu_metrics_t).

`amdsmi_get_violation_status` would tell what holds the clocks down, but sleeps for 100 ms. The counters that it takes
the difference of are here. They count periods of the firmware, so that their share of all periods is a share of time;
it is added up from the first reading on (GPU violations, AMD SMI documentation).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from milabench_ng.node.drivers.amd_smi.session import GpuReader, number

JOULES = 2.0**-16
"""The unit of the energy counter (amdsmi.h); the library's own factor for it is rounded, 0.3% too high."""
_GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}
"""PCIe generation by speed of a lane, in tenths of GT/s."""
_ONE_VALUE = {
    "temperature_c": "temperature_hotspot",
    "memory_temperature_c": "temperature_mem",
    "memory_clock_mhz": "current_uclk",
    "pcie_width": "pcie_link_width",
}
_RESIDENCIES = {
    "sw_power_cap": ("ppt_residency_acc",),
    "sw_thermal": ("socket_thm_residency_acc",),
    "hw_thermal": ("prochot_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
}
"""What holds clocks down: the limit of the package's power, its temperature, and that of regulators and memory."""

Metrics = Mapping[str, Any]


def read_metrics(reader: GpuReader) -> Metrics | None:
    """All metrics, in one call."""
    answer: Metrics | None = reader.ask("metrics", "gpu_metrics_info")
    return answer


def values(metrics: Metrics | None) -> dict[str, float | None]:
    """The values of a moment, by the names that samples have."""
    energy = number(metrics, "energy_accumulator")
    power = number(metrics, "current_socket_power")  # of MI300 and later
    return {
        "power_w": number(metrics, "average_socket_power") if power is None else power,
        "energy_j": None if energy is None else energy * JOULES,
        "sm_clock_mhz": _clock(metrics),
        "pcie_generation": _GENERATIONS.get(number(metrics, "pcie_link_speed")),
        **{name: number(metrics, key) for name, key in _ONE_VALUE.items()},
    }


def _clock(metrics: Metrics | None) -> int | None:
    """The mean clock of the dies that compute; older tables have one clock for all."""
    dies = [clock for clock in (metrics or {}).get("current_gfxclks", ()) if isinstance(clock, int) and clock]
    clock: int | None = round(mean(dies)) if dies else number(metrics, "current_gfxclk")
    return clock


class HeldDown:
    """For how long the clocks of one GPU were held down, in seconds since its first reading."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, int, Metrics] | None = None
        """When the newest period was read, its number, and all else of that reading."""
        self._seconds = dict.fromkeys(_RESIDENCIES, 0.0)

    def seconds(self, metrics: Metrics | None) -> dict[str, float | None]:
        """The times by reason, with ``metrics`` as the newest reading; None for what the GPU does not count."""
        periods = number(metrics, "accumulation_counter")
        if metrics is None or periods is None:
            return dict.fromkeys(_RESIDENCIES)
        now_s = self._clock()
        if self._last is not None and periods > self._last[1]:
            self._add(metrics, now_s - self._last[0], periods - self._last[1], self._last[2])
        if self._last is None or periods != self._last[1]:
            self._last = (now_s, periods, metrics)
        told = {reason: any(number(metrics, key) is not None for key in keys) for reason, keys in _RESIDENCIES.items()}
        return {reason: seconds if told[reason] else None for reason, seconds in self._seconds.items()}

    def _add(self, metrics: Metrics, passed_s: float, periods: int, before: Metrics) -> None:
        for reason, keys in _RESIDENCIES.items():
            risen = [
                last - first
                for key in keys
                if (last := number(metrics, key)) is not None and (first := number(before, key)) is not None
            ]
            self._seconds[reason] += passed_s * min(1.0, max((0, *risen)) / periods)
