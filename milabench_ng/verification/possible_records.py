"""The records that the rules may see: what their time depends on is bounded before. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from milabench_ng.model.plan import Plan
from milabench_ng.records.folder import Folder
from milabench_ng.records.names import RECORD_NAME
from milabench_ng.records.reading import Problem, ReadRecord, problem
from milabench_ng.records.record import Record

_SHORTEST_S = 0.1
"""Slices that are asked to be shorter are counted as if they were so long."""
_MORE_SLICES = 1_000
"""For the steps after a stop, and for an orchestrator that stood still."""


def possible_records(
    folder: Folder, names: Iterable[str], plan: Plan
) -> tuple[tuple[ReadRecord, ...], tuple[Problem, ...]]:
    """The records among the files ``names`` that a run of ``plan`` can have made, and why the others are none."""
    read = {one.file: one for one in (*folder.problems, *folder.records)}
    longest_s = longest(plan)
    kept: list[ReadRecord] = []
    unreadable: list[Problem] = []
    for name in filter(RECORD_NAME.fullmatch, names):
        match read.get(name):
            case ReadRecord() as found:
                why = impossible(found.record, longest_s)
                if not why:
                    kept.append(found)
                    continue
                unreadable.append(problem(name, f"not a readable record: {why}"))
            case Problem() as found:
                unreadable.append(found)
            case _:
                unreadable.append(problem(name, "not a record of this mnb"))
    return tuple(kept), tuple(unreadable)


def longest(plan: Plan) -> float | None:
    """The largest ``max_seconds`` of its launches, at which a batch is stopped; None if one has none."""
    found = [launch.arguments.get("max_seconds") for launch in plan.launches]
    known = [float(one) for one in found if isinstance(one, int | float)]
    return max(known) if known and len(known) == len(found) else None


def impossible(record: Record, longest_s: float | None) -> str:
    """Why no run has made it: no devices, or more than twice the slices that fit into ``longest_s``; else empty."""
    if not record.mnb.launch.devices or not record.mnb.devices:
        return "its launch has no device"
    asked = record.mnb.launch.arguments.get("sample_duration")
    if longest_s is None or not isinstance(asked, int | float):
        return ""
    least_s = max(float(asked), _SHORTEST_S)
    most = 2 * longest_s / least_s + _MORE_SLICES
    for rank in record.mnb.ranks:
        if len(rank.slices) > most:
            possible = f"{longest_s:g} s, its max_seconds, have at most {longest_s / least_s:.0f} of {least_s:g} s"
            return f"rank {rank.rank} has {len(rank.slices):,} slices; {possible}"
    return ""
