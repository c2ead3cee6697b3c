"""Evidence that a version writes into every record, and that a record has not got: it was taken out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from milabench_ng.node.conditions import Conditions
from milabench_ng.node.edge import Edge
from milabench_ng.node.gpu_conditions import THROTTLE_REASONS, GpuState
from milabench_ng.records.late_steps import late_steps
from milabench_ng.records.precision_seen import SCALED
from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.record import DIGEST_STEP, PROBED_STEPS, Mnb, Rank, Record
from milabench_ng.telemetry.messages import HOST_KEY, telemetry_key
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
            yield f"{name}: {uuid} does not report {', '.join(silent)} {edge} it, and nothing says why"
    for kept in evidence.good:
        yield from (f"{kept.name}: {why}" for why in _unsampled(evidence, kept.record.mnb))


_TOGETHER = {"throttled_ns", "links"}
"""Values of several kinds: each of them may be lacking."""
_ALL = {name for name in GpuState.__struct_fields__ if name not in _TOGETHER} | {*THROTTLE_REASONS}
_SAMPLED = {"power_w": "power_w", "sm_clock_mhz": "sm_clock_mhz", "energy_mj": "energy_j"}
"""State of a GPU -> its telemetry; the time for which clocks were held down is told in seconds."""


def _unsampled(evidence: Evidence, mnb: Mnb) -> Iterator[str]:
    """What the GPUs of a launch told at both edges, and its telemetry has not got."""
    boards = evidence.boards
    edges = [conditions.gpus for conditions in mnb.conditions.values()]
    for device in mnb.devices if len(edges) == len(EDGES) else ():
        uuid = device.uuid or ""
        board, telemetry = boards.get(uuid, uuid), mnb.telemetry.get(telemetry_key("gpu", uuid), {})
        told = set.intersection(*(_told(gpus[board]) if board in gpus else set() for gpus in edges))
        names = {_SAMPLED.get(name, f"{name}_s") for name in told & {*_SAMPLED, *_HELD_DOWN}}
        lacking = sorted(names - telemetry.keys())
        if lacking:
            silent = ", ".join(lacking)
            yield f"it has no telemetry of gpu:{device.uuid} with {silent}, which the GPU reported before it"


_HELD_DOWN = {*THROTTLE_REASONS} - {"sync_boost"}


def _states(evidence: Evidence) -> Iterator[tuple[str, Edge, str, Conditions, GpuState]]:
    for kept in evidence.good:
        for edge, conditions in kept.record.mnb.conditions.items():
            for uuid, state in conditions.gpus.items():
                yield kept.name, edge, uuid, conditions, state


def _told(state: GpuState) -> set[str]:
    values = {name: getattr(state, name) for name in GpuState.__struct_fields__ if name not in _TOGETHER}
    return {name for name, value in (values | state.throttled_ns).items() if value is not None}


Told = Mapping[str, object]


def untold_steps(evidence: Evidence) -> Iterator[str]:
    """Launches that leave out what they computed at steps that they did, or its skipped steps.

    A session in which one rank tells late steps is of a version whose ranks all do.
    """
    nonce = evidence.manifest.plan.nonce
    late = {label: late_steps(nonce, label) for label in {kept.record.mnb.label for kept in evidence.good}}
    good = [kept.record.mnb for kept in evidence.good]
    telling = {mnb.session for mnb in good if _tells(mnb.ranks, late[mnb.label])}
    for kept in evidence.good:
        declared = evidence.declared.get(kept.record.mnb.launch.workload)
        asked = (*PROBED_STEPS, *(late[kept.record.mnb.label] if kept.record.mnb.session in telling else ()))
        for rank in kept.record.mnb.ranks if declared else ():
            found = _lacking(kept, rank, asked, learned=bool(declared and declared.trains))
            yield from (f"{kept.name}: rank {rank.rank} has no {what}" for what in found)


def _tells(ranks: Iterable[Rank], late: Iterable[int]) -> bool:
    return any(not rank.losses.keys().isdisjoint(map(str, late)) for rank in ranks)


def _lacking(kept: ReadRecord, rank: Rank, asked: Iterable[int], *, learned: bool) -> Iterator[str]:
    seen = kept.record.mnb.precision
    steps, models = sum(row.steps for row in rank.slices), bool(seen and seen.dtypes)
    if learned or rank.losses:
        yield from _missing("loss", rank.losses, asked, steps)
    elif models and not rank.digests and steps >= DIGEST_STEP:
        yield f"loss of its {steps} steps, and no digest"
    if learned:
        yield from _missing("gradient norm", rank.gradient_norms, asked, steps)
    if learned and models and steps >= DIGEST_STEP and str(DIGEST_STEP) not in rank.digests:
        yield f"digest of the parameters at step {DIGEST_STEP}"
    if learned and seen is not None and seen.requested in SCALED and rank.skipped is None:
        yield f"count of the steps that the loss scale of {seen.requested} skipped"


def _missing(what: str, told: Told, asked: Iterable[int], steps: int) -> Iterator[str]:
    """Steps that the rank did and does not tell. It may tell more: some train several times in a step."""
    yield from (f"{what} at step {step}" for step in asked if step <= steps and str(step) not in told)
