"""The marks of a launch: everything that makes its result not comparable. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.node.conditions import throttled_fraction
from milabench_ng.orchestrator.outcome.seen import Seen, Setting
from milabench_ng.orchestrator.outcome.skipped import skipped
from milabench_ng.records.marks import Mark
from milabench_ng.records.record import SKIPPED_LIMIT
from milabench_ng.records.window import WindowRule

FAULTS = ("sw_thermal", "hw_thermal", "hw_power_brake")
"""Reasons to hold clocks down that are faults of the node or its cooling; the power cap is normal at full load."""
THROTTLE_LIMIT = 0.005


def marks(setting: Setting, seen: Seen) -> tuple[Mark, ...]:
    """The marks of one launch: those of the run, of what was asked, of its batch, and of its own devices."""
    return (*_of_run(setting), *_of_request(setting, seen), *_of_batch(setting, seen), *_of_devices(setting, seen))


def _of_run(setting: Setting) -> Iterator[Mark]:
    for difference in setting.differences:
        yield Mark(kind="resumed", what=difference)
    if setting.fence.tier == "partial":
        yield Mark(kind="partly isolated")
    elif setting.fence.tier != "full":
        yield Mark(kind="not isolated", what=setting.fence.tier)
    if not setting.rule.comparable:
        yield Mark(kind="window shortened", value=setting.rule.length_s, limit=WindowRule().length_s)


def _of_request(setting: Setting, seen: Seen) -> Iterator[Mark]:
    if seen.launch.overrides:
        yield Mark(kind="options overridden", what=", ".join(seen.launch.overrides))
    if seen.data and seen.data.kind == "classic":
        yield Mark(kind="classic data", what=seen.data.name)
    asked = setting.io.get(seen.launch.test)
    if asked and asked.override:
        yield Mark(kind="I/O share overridden")
    if asked and asked.method == "readers":
        yield Mark(kind="I/O share held by readers")


def _of_batch(setting: Setting, seen: Seen) -> Iterator[Mark]:
    if seen.neighbours.lost:
        lost, planned = len(seen.neighbours.lost), seen.neighbours.planned
        yield Mark(kind="neighbours lost", what=str(planned), value=lost)
    if any(setting.shares[device].smt_shared for device in seen.launch.devices):
        yield Mark(kind="siblings shared")


def _of_devices(setting: Setting, seen: Seen) -> Iterator[Mark]:
    """Precision, skipped steps and clocks of each device of the launch; a MIG instance has the clocks of its board."""
    requested = str(seen.launch.arguments["precision"])
    throttled = throttled_fraction(*seen.conditions)
    for device, rank in zip(seen.launch.devices, seen.ranks, strict=True):
        if rank.ready and rank.ready.ran != requested and rank.ready.parameters:
            yield Mark(kind="precision", device=str(device), what=f"{requested} asked, {rank.ready.ran} ran")
        steps = skipped(rank, seen.timeline.start_s, setting.rule)
        share = steps.too_many if steps else None
        if share is not None:
            yield Mark(kind="steps skipped", device=str(device), value=share, limit=SKIPPED_LIMIT)
        for reason, fraction in throttled.get(setting.boards.get(device, ""), {}).items():
            if reason in FAULTS and fraction > THROTTLE_LIMIT:
                yield Mark(kind="throttled", device=str(device), what=reason, value=fraction, limit=THROTTLE_LIMIT)
