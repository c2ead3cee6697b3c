"""Finds the marks of a launch: everything that makes its result not comparable. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.model.catalogue import AUTO
from milabench_ng.model.limits import most
from milabench_ng.model.plan import Launch
from milabench_ng.node.conditions import CLOCK_LIMIT_S, clock_set_by_s, throttled_fraction
from milabench_ng.node.gpu_conditions import FAULTS, held_down
from milabench_ng.node.storage import Storage, in_memory
from milabench_ng.records.isolation import Tier, handicaps
from milabench_ng.records.marks import Mark
from milabench_ng.records.precision_seen import layers_fit
from milabench_ng.records.prefetched import prefetched
from milabench_ng.records.record import SKIPPED_LIMIT
from milabench_ng.records.surroundings import marks_of_surroundings
from milabench_ng.records.window import WindowRule
from milabench_ng.run.outcome.observation import Observation, SessionFacts
from milabench_ng.run.outcome.skipped import skipped
from milabench_ng.run.planning.planned_run import PlannedRun
from milabench_ng.telemetry.messages import HOST_KEY, telemetry_key

CACHE_LIMIT = 0.1
"""Page cache that one tenant is charged more than another: that much less of its share is left for its own work."""
PAUSED_LIMIT_S = 3.0
"""A busy node keeps the orchestrator waiting for a second or two; a stopped process or machine, for longer."""


def marks(facts: SessionFacts, seen: Observation) -> tuple[Mark, ...]:
    """The marks of one launch: from the run, the request, its batch and its own devices."""
    return (*_of_run(facts), *_of_request(facts, seen), *_of_batch(facts, seen), *_of_devices(facts, seen))


def _of_run(facts: SessionFacts) -> Iterator[Mark]:
    for difference in facts.begun.differences:
        yield Mark(kind="resumed", what=difference)
    yield from _of_plan(facts.planned, facts.fence.tier)


def _of_plan(planned: PlannedRun, tier: Tier) -> Iterator[Mark]:
    if tier == "partial":
        yield Mark(kind="partly isolated")
    elif tier != "full":
        yield Mark(kind="not isolated", what=tier)
    if planned.resctrl is not None:
        yield Mark(kind="caches divided")
    if not planned.rule.comparable:
        yield Mark(kind="window shortened", value=planned.rule.length_s, limit=WindowRule().length_s)


def foreseen(planned: PlannedRun, tier: Tier, dataroot: Storage) -> Iterator[Mark]:
    """The marks that a run will have whatever happens in it; ``tier``: of the fence that it will have."""
    yield from _of_plan(planned, tier)
    request, classic = planned.request, {one.classic for one in planned.catalogue.data_sets.values() if one.classic}
    for launch in planned.plan.measured:
        yield from _of_options(launch)
        if launch.auto_batch:
            yield Mark(kind="automatic batch size", what=AUTO)
        data = planned.workload(launch).data_set(launch.arguments)
        if request.classic_data and data in classic:
            yield Mark(kind="classic data", what=data or "")
        if request.trust_data and data is not None:
            yield Mark(kind="data not read again", what=data)
        yield from _of_storage(planned, launch, dataroot)
        yield from _of_io(planned, launch)
        yield from _of_shares(planned, launch)


def _of_options(launch: Launch) -> Iterator[Mark]:
    if launch.overrides:
        yield Mark(kind="options overridden", what=", ".join(launch.overrides))


def _of_storage(planned: PlannedRun, launch: Launch, dataroot: Storage) -> Iterator[Mark]:
    if in_memory(dataroot) and planned.workload(launch).stores:
        yield Mark(kind="files in memory", what=dataroot.filesystem)


def _of_io(planned: PlannedRun, launch: Launch) -> Iterator[Mark]:
    asked = planned.io.get(launch.test)
    if asked and asked.override:
        yield Mark(kind="I/O share overridden")
    if asked and asked.method == "readers":
        yield Mark(kind="I/O share held by readers")


def _of_shares(planned: PlannedRun, launch: Launch) -> Iterator[Mark]:
    if any(planned.shares[slot].smt_shared for slot in launch.slot_ids):
        yield Mark(kind="siblings shared")


def _of_request(facts: SessionFacts, seen: Observation) -> Iterator[Mark]:
    yield from _of_options(seen.launch)
    if seen.batch_search:
        yield Mark(kind="automatic batch size", what=str(seen.batch_search.size or "none fits"))
    if seen.data and seen.data.kind == "classic":
        yield Mark(kind="classic data", what=seen.data.name)
    if seen.data and facts.planned.request.trust_data:
        yield Mark(kind="data not read again", what=seen.data.name)
    yield from _of_storage(facts.planned, seen.launch, facts.dataroot)
    yield from _of_io(facts.planned, seen.launch)


def _of_batch(facts: SessionFacts, seen: Observation) -> Iterator[Mark]:
    yield from marks_of_surroundings(*seen.surroundings)
    if seen.cache_spread > CACHE_LIMIT:
        yield Mark(kind="unequal page cache", value=seen.cache_spread, limit=CACHE_LIMIT)
    if seen.strays:
        yield Mark(kind="outlived its fence", what=", ".join(seen.strays))
    if seen.neighbours.lost:
        lost, planned = len(seen.neighbours.lost), seen.neighbours.planned
        yield Mark(kind="neighbours lost", what=str(planned), value=lost)
    yield from _of_shares(facts.planned, seen.launch)
    if seen.paused_s > PAUSED_LIMIT_S:
        yield Mark(kind="orchestrator paused", value=seen.paused_s, limit=PAUSED_LIMIT_S)
    set_by_s = clock_set_by_s(*seen.conditions)
    if abs(set_by_s) > CLOCK_LIMIT_S:
        yield Mark(kind="clock set", value=round(set_by_s, 1), limit=CLOCK_LIMIT_S)
    if seen.foreign_cpu is not None and seen.foreign_cpu > most("foreign CPU load"):
        yield Mark(kind="foreign CPU load", value=round(seen.foreign_cpu, 3), limit=most("foreign CPU load"))
    if seen.window and not seen.telemetry.get(telemetry_key("host", HOST_KEY), True):
        yield Mark(kind="telemetry missing", what=seen.sampler_problem or "no sample in the averaging window")


def _of_devices(facts: SessionFacts, seen: Observation) -> Iterator[Mark]:
    """Precision, skipped steps and clocks of each device of the launch; a MIG instance has its board's clocks."""
    requested = str(seen.launch.arguments["precision"])
    edges = throttled_fraction(*seen.conditions)
    ranks = zip(seen.launch.slot_ids, seen.ranks, strict=True)
    yield from prefetched(((slot, rank.slices) for slot, rank in ranks), seen.window)
    for slot, rank in zip(seen.launch.slot_ids, seen.ranks, strict=True):
        if rank.ready and rank.ready.ran != requested and rank.ready.parameters:
            yield Mark(kind="precision", device=slot, what=f"{requested} requested, {rank.ready.ran} ran")
        proc = seen.evidence[slot].proc if slot in seen.evidence else None
        odd = (*handicaps(proc.scheduling), *seen.evidence[slot].privileged) if proc and proc.scheduling else ()
        odd = (*odd, *(seen.evidence[slot].rescheduled if slot in seen.evidence else ()))
        if odd:
            yield Mark(kind="scheduling", device=slot, what=", ".join(dict.fromkeys(odd)))
        layer = rank.done.layer_dtype if rank.done else None
        if not layers_fit(requested, layer):
            yield Mark(
                kind="precision", device=slot, what=f"{requested} requested, the model's layers computed in {layer}"
            )
        steps = skipped(rank, seen.start_s, facts.planned.rule)
        share = steps.too_many if steps else None
        if share is not None:
            yield Mark(kind="steps skipped", device=slot, value=share, limit=SKIPPED_LIMIT)
        board = seen.conditions[0].gpus.get(facts.boards.get(slot, ""))
        if board and board.foreign_pids:  # of after it, some may be workers that are still ending
            yield Mark(kind="GPU used by others", device=slot, what=", ".join(map(str, board.foreign_pids)))
        over_all = edges.get(facts.boards.get(slot, ""), {})
        in_window = held_down(seen.telemetry.get(telemetry_key("gpu", facts.planned.devices[slot].uuid or ""), {}))
        for reason in FAULTS:
            fraction = max(over_all.get(reason, 0.0), in_window.get(reason, 0.0))
            if fraction > most("throttled"):
                yield Mark(kind="throttled", device=slot, what=reason, value=fraction, limit=most("throttled"))
