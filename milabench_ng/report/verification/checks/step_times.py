"""Seconds within a slice: latencies and the parts that a workload notes fit into it, and fill most of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from milabench_ng.builtin import Declared
from milabench_ng.records.latency import MOST, Latencies, lower_s, middle_s
from milabench_ng.records.record import Rank, Record
from milabench_ng.records.window import SliceRow
from milabench_ng.report.verification.evidence import Evidence

INFERRING = ("cv_infer", "llm_decode", "llm_prefill", "unet3d_infer")
"""Workloads that time every batch; no other one of mnb times any."""
_AT_ONCE = ("h2d",)
"""Workloads whose noted parts go on at the same time; those of others follow each other."""
_CLOCKS = 1.01
"""A GPU times with a clock of its own."""
_LATENCIES_FILL = 0.7
"""Of the time of a launch that was not spent waiting for data: honest ones fill 0.95 and more."""
_PARTS_FILL = 0.3
"""The same for noted parts: between them, workloads check what came back.

On a CPU, each direction of `h2d` fills half."""


def odd_times(evidence: Evidence) -> Iterator[str]:
    """Launches whose latencies or noted seconds are more than their slices have, or far less."""
    for name, record in evidence.named():
        own = evidence.builtin.get(record.mnb.launch.workload)
        for rank in record.mnb.ranks:
            found = (*_latencies(record, rank, own), *(_notes(record, rank, own) if own else ()))
            yield from (f"{name}: rank {rank.rank} {why}" for why in found)


def _latencies(record: Record, rank: Rank, own: Declared | None) -> Iterator[str]:
    """``own``: None for a workload of others, which may spend its steps on more than what it times."""
    for number, row in enumerate(rank.slices):
        least, worked_s = least_s(row.latency), row.length_s - row.wait_s
        if least > worked_s * _CLOCKS:
            yield f"has latencies of {least:.4g} s in slice {number}, which worked for {worked_s:.4g} s"
            return
    noted = math.fsum(middle_s(bucket) * count for row in rank.slices for bucket, count in row.latency)
    worked_s = _worked_s(rank)
    if record.success and noted == 0 and rank.slices and record.mnb.launch.workload in INFERRING:
        yield "has no latencies"
    elif record.success and own is not None and 0 < noted < _LATENCIES_FILL * worked_s:
        yield f"has latencies of {noted:.4g} s in all, and worked for {worked_s:.4g} s"
    elif own is not None and noted and record.mnb.launch.workload not in INFERRING:
        yield f"has latencies, and {record.mnb.launch.workload} times no batch"


def least_s(latency: Latencies) -> float:
    """The least sum of these latencies, in seconds; joined buckets count from their lowest bound on."""
    step = math.gcd(*(bucket + 1 for bucket, _ in latency)) if len(latency) > MOST // 2 else 1
    # The first bucket also holds what is shorter.
    return math.fsum(count * lower_s(bucket + 1 - step) for bucket, count in latency if bucket >= step)


def _notes(record: Record, rank: Rank, own: Declared) -> Iterator[str]:
    workload = record.mnb.launch.workload
    for number, row in enumerate(rank.slices):
        why = next(_odd_notes(workload, row, own), None)
        if why is not None:
            yield f"{why} in slice {number}"
            return
    worked_s = _worked_s(rank)
    for what, seconds in _in_all(workload, rank, own).items():
        if record.success and seconds < _PARTS_FILL * worked_s:
            yield f"notes {what} of {seconds:.4g} s in all, and worked for {worked_s:.4g} s"


def _odd_notes(workload: str, row: SliceRow, own: Declared) -> Iterator[str]:
    """What cannot be in a slice: seconds beyond its length, shares above one a step, notes that nobody declared."""
    seconds = _seconds(workload, row.notes)
    if seconds > row.length_s * _CLOCKS:
        yield f"notes parts of {seconds:.4g} s, of {row.length_s:.4g} s,"
    yield from (f"notes {name}, which {workload} does not," for name in row.notes if name not in own.notes)
    yield from (f"lacks {name}" for name in own.notes if name.endswith("_s") and name not in row.notes)
    yield from (
        f"notes {name} of {value:.4g} for {row.steps} steps"
        for name, value in row.notes.items()
        if not name.endswith("_s") and value > row.steps * _CLOCKS
    )


def _in_all(workload: str, rank: Rank, own: Declared) -> dict[str, float]:
    """The seconds that fill a launch: of all parts together, or of each where they go on at the same time."""
    if workload not in _AT_ONCE:
        noted = math.fsum(_seconds(workload, row.notes) for row in rank.slices)
        return {"parts": noted} if own.notes else {}
    names = [name for name in own.notes if name.endswith("_s")]
    return {name: math.fsum(row.notes.get(name, 0.0) for row in rank.slices) for name in names}


def _seconds(workload: str, notes: Mapping[str, float]) -> float:
    parts = [value for name, value in notes.items() if name.endswith("_s")]
    return max(parts, default=0.0) if workload in _AT_ONCE else math.fsum(parts)


def _worked_s(rank: Rank) -> float:
    return math.fsum(row.length_s - row.wait_s for row in rank.slices)
