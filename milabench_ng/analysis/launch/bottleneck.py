"""What set the pace of a launch, as its telemetry shows it, beside what its workload declares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from milabench_ng.model.catalogue import Bound
from milabench_ng.model.stats import mean
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import telemetry_key

Bottleneck = Literal["gpu", "cpu", "io", "host", "mixed"]
"""The GPU or its links; the CPUs that make the data; storage; the host's code between two kernels; several of them.

How busy a GPU is does not tell its arithmetic, its memory and its links apart, nor do the CPUs tell a launch of a
kernel from other code of the main process.
"""
NAMES: Mapping[Bottleneck, str] = {
    "gpu": "the GPU",
    "cpu": "the CPUs that make the data",
    "io": "storage",
    "host": "the host's code between kernels",
    "mixed": "several",
}
"""In a sentence."""

_FITS: Mapping[Bound, frozenset[Bottleneck]] = {
    "cpu": frozenset({"cpu", "host", "mixed"}),
    "io": frozenset({"io", "mixed"}),
    "launch": frozenset({"host", "mixed"}),
    "links": frozenset({"gpu", "mixed"}),
    "gpu-compute": frozenset({"gpu", "mixed"}),
    "gpu-memory": frozenset({"gpu", "mixed"}),
}
"""What may be measured where something is declared."""

BUSY, LESS_BUSY = 0.9, 0.6
"""Share of the window in which a kernel runs: at least, where the GPU sets the pace, and less, where it does not."""
STALLED = 0.3
"""Share of a launch's life in which some task of a tenant waited for storage: 0.66 to 0.75 where files are written as
fast as they can, at most 0.04 in all others that were measured."""
WAITING, LITTLE_WAITING = 0.25, 0.1
"""Share of the window spent waiting for data: 0.62 to 1.0 where loaders set the pace."""
EXHAUSTED = 0.9
"""Share of its CPUs that a tenant uses where it has no more."""


def measured_bottleneck(load: float, wait_share: float, cpu_use: float | None, io_stalled: float | None) -> Bottleneck:
    """What set the pace, from shares of 0 to 1.

    ``load``: of the window, in which a kernel ran on the GPU. ``wait_share``: of the window, spent waiting for data.
    ``cpu_use``: of the tenant's CPUs. ``io_stalled``: of the time, in which some task waited for storage. None for
    what the kernel does not count.
    """
    if load >= BUSY:
        return "gpu"
    if (io_stalled or 0.0) >= STALLED:
        return "io"
    if load >= LESS_BUSY:
        return "mixed"
    if wait_share >= WAITING or (cpu_use or 0.0) >= EXHAUSTED:
        return "cpu"
    return "mixed" if wait_share >= LITTLE_WAITING else "host"


def contradicts(declared: Bound | str | None, measured: Bottleneck | None) -> bool:
    """Whether what was measured is not what the workload declares; False where either is unknown."""
    return measured is not None and declared in _FITS and measured not in _FITS[declared]  # type: ignore[index]


def cpu_use(mnb: Mnb) -> float | None:
    """The share of its CPUs that the busiest tenant of a launch used in the window; None if unknown."""
    found = []
    for slot, isolation in mnb.isolation.items():
        spent = mnb.telemetry.get(telemetry_key("tenant", slot), {}).get("cpu_s")
        if spent is not None and spent.span_s > 0 and isolation.requested.cpus:
            found.append((spent.max - spent.min) / spent.span_s / len(isolation.requested.cpus))
    return max(found, default=None)


def io_stalled(isolation: Mapping[str, Isolation], life_s: float | None) -> float | None:
    """The share of a launch's life in which some task of a tenant waited for storage; None if unknown."""
    stalls = [one.usage.pressure["io"].some_s for one in isolation.values() if one.usage and "io" in one.usage.pressure]
    return mean(stalls) / life_s if stalls and life_s else None
