"""Settings of the node that changed from launch to launch, or that make it faster than what is sold."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.node.gpu_conditions import GpuSettings
from milabench_ng.telemetry.messages import telemetry_key
from milabench_ng.verification.evidence import Evidence

_OF_A_GPU = (
    *("vbios", "power_limit_w", "default_power_limit_w", "ecc", "mig_mode"),
    *("max_sm_clock_mhz", "max_memory_clock_mhz", "application_sm_clock_mhz", "application_memory_clock_mhz"),
)
_RAM = 0.01
"""The kernel of one boot shows the same RAM; virtual machines may grow."""
UNSAFE = {"mitigations=off", "nopti", "pti=off", "nospectre_v1", "nospectre_v2", "spectre_v2=off", "mds=off"}
"""Of the kernel's command line (Documentation/admin-guide/kernel-parameters.txt)."""


def changed_settings(evidence: Evidence) -> Iterator[str]:
    """Launches under another kernel, driver, RAM or setting of their GPUs than the run, or than other launches."""
    inventory = evidence.manifest.inventory
    first: dict[str, GpuSettings] = {}
    for name, record in evidence.named():
        for edge in record.mnb.conditions.values():
            ram = edge.host.memory_total_bytes
            if ram is not None and _other_ram(ram, inventory.memory_bytes, inventory.virtualization is not None):
                yield f"{name}: the node had {ram} bytes of RAM, but run.json says {inventory.memory_bytes}"
            if edge.settings is None:
                continue
            for what, found, said in (
                ("kernel", edge.settings.host.kernel, inventory.kernel),
                ("driver", edge.settings.driver, inventory.driver),
            ):
                if found != said and found is not None:
                    yield f"{name}: the {what} was {found}, run.json says {said}"
            for uuid, settings in edge.settings.gpus.items():
                yield from (f"{name}: {what}" for what in _differing(uuid, first.setdefault(uuid, settings), settings))


def _other_ram(found: int, said: int, virtual: bool) -> bool:
    return found < said * (1 - _RAM) or (found > said * (1 + _RAM) and not virtual)


def _differing(uuid: str, usual: GpuSettings, found: GpuSettings) -> Iterator[str]:
    for what in _OF_A_GPU:
        one, other = getattr(usual, what), getattr(found, what)
        if one != other:
            yield f"{what} of {uuid} was {other}, and {one} in other launches"


def overclocked(evidence: Evidence) -> Iterator[str]:
    """GPUs that ran above the highest clock that they are made for."""
    for name, record in evidence.named():
        before, after = record.mnb.conditions.get("before"), record.mnb.conditions.get("after")
        for uuid, settings in (before.settings.gpus if before and before.settings else {}).items():
            sampled = record.mnb.telemetry.get(telemetry_key("gpu", uuid), {})
            states = [edge.gpus[uuid] for edge in (before, after) if edge is not None and uuid in edge.gpus]
            for kind, limit, key in (
                ("cores", settings.max_sm_clock_mhz, "sm_clock_mhz"),
                ("memory", settings.max_memory_clock_mhz, "memory_clock_mhz"),
            ):
                spread = sampled.get(key)
                seen = [spread.max if spread else None, *(getattr(state, key) for state in states)]
                highest = max((clock for clock in seen if clock is not None), default=0)
                if limit is not None and highest > limit:
                    yield f"{name}: the {kind} of {uuid} ran at {highest:g} MHz, {limit} MHz is their highest clock"


def without_mitigations(evidence: Evidence) -> Iterator[str]:
    """Launches on a kernel that was told not to work around faults of its CPUs, or that does not say."""
    for name, record in evidence.named():
        before = record.mnb.conditions.get("before")
        if before is None or before.settings is None or before.settings.host.command_line is None:
            yield f"{name}: the kernel's command line is not recorded"
            continue
        found = sorted(UNSAFE & set(before.settings.host.command_line.split()))
        if found:
            yield f"{name}: the kernel was started with {' '.join(found)}"
