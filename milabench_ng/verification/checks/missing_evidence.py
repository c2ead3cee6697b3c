"""Evidence that a version writes into every record, and that a record has not got: it was taken out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from milabench_ng.node.conditions import Conditions
from milabench_ng.node.edge import Edge
from milabench_ng.node.gpu_conditions import THROTTLE_REASONS, GpuState
from milabench_ng.records.record import Mnb, Record
from milabench_ng.telemetry.messages import HOST_KEY, telemetry_key
from milabench_ng.verification.checks.probed_steps import untold_steps
from milabench_ng.verification.evidence import Evidence

EDGES: tuple[Edge, Edge] = ("before", "after")


def left_out(evidence: Evidence) -> Iterator[str]:
    """What launches that succeeded do not tell, though this version writes it."""
    for kept in evidence.good:
        yield from (f"{kept.name}: it has no {what}" for what in _of_a_record(evidence, kept.record))
    yield from untold_steps(evidence)
    plan = evidence.manifest.plan
    untold = [slot for slot in plan.slots if slot not in evidence.manifest.shares]
    yield from (f"run.json has no share of device {slot}" for slot in untold)
    yield from _of_gpus(evidence)


def _of_a_record(evidence: Evidence, record: Record) -> Iterator[str]:
    mnb = record.mnb
    for edge in EDGES:
        if mnb.surroundings is msgspec.UNSET or edge not in mnb.surroundings:
            yield f"surroundings {edge} it"
        if edge not in mnb.conditions:
            yield f"conditions {edge} it"
        yield from (
            f"CPU speed check of device {slot} {edge} it"
            for slot in mnb.launch.slot_ids
            if edge not in mnb.host_pace.get(slot, {})
        )
    if mnb.sampled is None:
        yield "span of its telemetry"
    yield from (f"telemetry of {source}" for source in _sources(mnb) if source not in mnb.telemetry)
    for slot, share in mnb.isolation.items():
        if share.tier == "full" and (share.usage is None or share.usage.cpu_usec is None):
            yield f"CPU time that the kernel counted for device {slot}"
        if share.proc is not None and (share.proc.confinement is None or share.proc.scheduling is None):
            yield f"confinement or scheduling of the process of device {slot}"
    seen, declared = mnb.precision, evidence.declared.get(mnb.launch.workload)
    typed = declared is not None and not declared.own_types
    if typed and seen is not None and seen.dtypes and seen.layer_dtype is None:
        yield "type in which its layers computed"


def _sources(mnb: Mnb) -> Iterator[str]:
    yield telemetry_key("host", HOST_KEY)
    for slot, share in mnb.isolation.items():
        if share.tier == "full":
            yield telemetry_key("tenant", slot)


def _of_gpus(evidence: Evidence) -> Iterator[str]:
    """Values that a GPU neither told, nor failed to tell, nor lacks; and GPUs that were not sampled."""
    for name, edge, uuid, conditions, state in _states(evidence):
        excused = {*conditions.unsupported, *(what.removeprefix(f"{uuid} ") for what in conditions.errors)}
        if "fields" in excused:  # one call for all of them
            excused |= {*THROTTLE_REASONS, "memory_temperature_c"}
        silent = sorted(_ALL - _told(state) - excused)
        if silent:
            yield f"{name}: {uuid} does not tell {', '.join(silent)} {edge} it, and nothing says why"
    for kept in evidence.good:
        yield from (f"{kept.name}: {why}" for why in _unsampled(evidence, kept.record.mnb))


_TOGETHER = {"throttled_ns", "links"}
"""Values of several kinds: each of them may be lacking."""
_ALL = {name for name in GpuState.__struct_fields__ if name not in _TOGETHER} | {*THROTTLE_REASONS}
_SAMPLED = {"power_w": "power_w", "sm_clock_mhz": "sm_clock_mhz", "energy_mj": "energy_j"}
"""State of a GPU -> its telemetry; the time for which clocks were held down is told in seconds."""


def _unsampled(evidence: Evidence, mnb: Mnb) -> Iterator[str]:
    """What the GPUs of a launch told at both edges, and its telemetry has not got."""
    boards: dict[str | None, str] = {gpu.uuid: gpu.board for gpu in evidence.manifest.inventory.gpus}
    edges = [conditions.gpus for conditions in mnb.conditions.values()]
    for device in mnb.devices if len(edges) == len(EDGES) else ():
        uuid = device.uuid or ""
        board, telemetry = boards.get(uuid, uuid), mnb.telemetry.get(telemetry_key("gpu", uuid), {})
        told = set.intersection(*(_told(gpus[board]) if board in gpus else set() for gpus in edges))
        names = {_SAMPLED.get(name, f"{name}_s") for name in told & {*_SAMPLED, *_HELD_DOWN}}
        lacking = sorted(names - telemetry.keys())
        if lacking:
            yield f"it has no telemetry of gpu:{device.uuid} with {', '.join(lacking)}, which the GPU told before it"


_HELD_DOWN = {*THROTTLE_REASONS} - {"sync_boost"}


def _states(evidence: Evidence) -> Iterator[tuple[str, Edge, str, Conditions, GpuState]]:
    for kept in evidence.good:
        for edge, conditions in kept.record.mnb.conditions.items():
            for uuid, state in conditions.gpus.items():
                yield kept.name, edge, uuid, conditions, state


def _told(state: GpuState) -> set[str]:
    values = {name: getattr(state, name) for name in GpuState.__struct_fields__ if name not in _TOGETHER}
    return {name for name, value in (values | state.throttled_ns).items() if value is not None}
