"""Evidence that a version writes into every record, and that a record has not got: it was taken out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from milabench_ng.node.conditions import Conditions
from milabench_ng.node.edge import Edge
from milabench_ng.node.gpu_conditions import THROTTLE_FIELDS, GpuState
from milabench_ng.records.record import Mnb, Record
from milabench_ng.report.verification.evidence import Evidence

EDGES: tuple[Edge, Edge] = ("before", "after")


def left_out(evidence: Evidence) -> Iterator[str]:
    """What launches that succeeded do not tell, though this version writes it."""
    for kept in evidence.good:
        yield from (f"{kept.name}: it has no {what}" for what in _of_a_record(evidence, kept.record))
    yield from _of_gpus(evidence)


def _of_a_record(evidence: Evidence, record: Record) -> Iterator[str]:
    mnb = record.mnb
    for edge in EDGES:
        if mnb.surroundings is msgspec.UNSET or edge not in mnb.surroundings:
            yield f"surroundings {edge} it"
        if edge not in mnb.conditions:
            yield f"conditions {edge} it"
        yield from (
            f"host pace of device {slot} {edge} it"
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
    seen = mnb.precision
    own = mnb.launch.workload in evidence.declared
    if own and seen is not None and seen.dtypes and seen.layer_dtype is None:
        yield "type in which its layers computed"


def _sources(mnb: Mnb) -> Iterator[str]:
    yield "host:node"
    for slot, share in mnb.isolation.items():
        if share.tier == "full":
            yield f"tenant:{slot}"


def _of_gpus(evidence: Evidence) -> Iterator[str]:
    """Values that a GPU told in some launch, and neither told nor failed to tell in another."""
    told: dict[str, set[str]] = {}
    for _, _, uuid, _, state in _states(evidence):
        told.setdefault(uuid, set()).update(_told(state))
    for name, edge, uuid, conditions, state in _states(evidence):
        failed = {what.removeprefix(f"{uuid} ") for what in conditions.errors}
        if "fields" in failed:  # one call for all of them
            failed |= {*THROTTLE_FIELDS, "memory_temperature_c"}
        silent = sorted(told[uuid] - _told(state) - failed)
        if silent:
            yield f"{name}: {uuid} does not tell {', '.join(silent)} {edge} it, as it did for other launches"
    sampled = {source for kept in evidence.good for source in kept.record.mnb.telemetry if source.startswith("gpu:")}
    for kept in evidence.good:
        own = {f"gpu:{device.uuid}" for device in kept.record.mnb.devices} & sampled
        for source in sorted(own - kept.record.mnb.telemetry.keys()):
            yield f"{kept.name}: it has no telemetry of {source}, as other launches have"


def _states(evidence: Evidence) -> Iterator[tuple[str, Edge, str, Conditions, GpuState]]:
    for kept in evidence.good:
        for edge, conditions in kept.record.mnb.conditions.items():
            for uuid, state in conditions.gpus.items():
                yield kept.name, edge, uuid, conditions, state


def _told(state: GpuState) -> set[str]:
    values = {name: getattr(state, name) for name in GpuState.__struct_fields__ if name != "throttled_ns"}
    return {name for name, value in (values | state.throttled_ns).items() if value is not None}
