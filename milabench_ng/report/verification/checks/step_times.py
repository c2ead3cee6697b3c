"""Seconds within a slice: latencies and noted parts fit into it and fill most of it; who is fed by nothing works."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from milabench_ng.bounds import Latencies
from milabench_ng.builtin import Declared
from milabench_ng.plan import Launch
from milabench_ng.records.latency import MOST, lower_s, middle_s
from milabench_ng.records.record import Rank, Record
from milabench_ng.records.window import SliceRow, wait_share
from milabench_ng.report.verification.evidence import Evidence

INFERRING = ("cv_infer", "llm_decode", "llm_prefill", "unet3d_infer")
"""Workloads that time every batch; no other one of mnb times any."""
_AT_ONCE = ("h2d",)
"""Workloads whose noted parts go on at the same time; those of others follow each other."""
_CLOCKS = 1.01
"""A GPU times with a clock of its own."""
_LATENCIES_FILL = 0.7
"""Of the time in the window that was not spent waiting for data: honest ones fill 0.95 and more."""
_PARTS_FILL = 0.3
"""The same for noted parts: between them, workloads check what came back.

On a CPU, each direction of `h2d` fills half."""
WITHOUT_LOADER = ("dlrm", "llm_fsdp", "llm_lora", "llm_prefill", "llm_pretrain", "moe", "txl", "wlm")
"""Workloads that read their data before the clock and cut batches out of it. `ncf`, which draws whole epochs while it
is asked for a batch, is none of them."""
_WAITED = 0.2
"""Of the window, where nothing feeds a workload: honest ones waited for 0.04 at most, on a CPU with tiny steps."""
_AT_WORK = 0.5
"""Of its share ``busy``, that an antagonist works at least: who sleeps between steps of a millisecond wakes late."""


def odd_times(evidence: Evidence) -> Iterator[str]:
    """Launches whose latencies or noted seconds are more than their slices have, or far less."""
    for name, record in evidence.named():
        own = evidence.builtin.get(record.mnb.launch.workload)
        for rank in record.mnb.ranks:
            found = (*_latencies(record, rank, own), *(_of_builtin(record, rank, own) if own else ()))
            yield from (f"{name}: rank {rank.rank} {why}" for why in found)


def _of_builtin(record: Record, rank: Rank, own: Declared) -> Iterator[str]:
    yield from _notes(record, rank, own)
    yield from _waits(record, rank, own)


def _waits(record: Record, rank: Rank, own: Declared) -> Iterator[str]:
    """Waiting for batches that nobody makes; the pauses of antagonists count as such."""
    window, launch = record.mnb.window, record.mnb.launch
    if not record.success or window is None or fed(launch, own):
        return
    waited, busy = wait_share(rank.slices, window), launch.arguments.get("busy")
    most = 1 - _AT_WORK * busy if isinstance(busy, float) and busy < 1 else _WAITED
    if waited > most:
        yield f"waited for {waited:.0%} of its window, and nothing feeds {launch.workload} (at most {most:.0%})"


def fed(launch: Launch, own: Declared) -> bool:
    """Whether loader processes make the batches."""
    source = launch.arguments.get("source")
    if source is not None:
        return source != "resident"
    return own.data is not None and launch.workload not in WITHOUT_LOADER


def _latencies(record: Record, rank: Rank, own: Declared | None) -> Iterator[str]:
    """``own``: None for a workload of others, which may spend its steps on more than what it times."""
    for number, row in enumerate(rank.slices):
        least, worked_s = least_s(row.latency), row.length_s - row.wait_s
        if least > worked_s * _CLOCKS:
            yield f"has latencies of {least:.4g} s in slice {number}, which worked for {worked_s:.4g} s"
            return
    inside = _inside(record, rank)
    noted = math.fsum(middle_s(bucket) * count for row in inside for bucket, count in row.latency)
    worked_s = _worked_s(inside)
    if record.success and noted == 0 and rank.slices and record.mnb.launch.workload in INFERRING:
        yield "has no latencies"
    elif record.success and own is not None and 0 < noted < _LATENCIES_FILL * worked_s:
        yield f"has latencies of {noted:.4g} s in its window, and worked for {worked_s:.4g} s"
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
    inside = _inside(record, rank)
    worked_s = _worked_s(inside)
    for what, seconds in _in_all(workload, inside, own).items():
        if record.success and seconds < _PARTS_FILL * worked_s:
            yield f"notes {what} of {seconds:.4g} s in its window, and worked for {worked_s:.4g} s"


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


def _in_all(workload: str, rows: Sequence[SliceRow], own: Declared) -> dict[str, float]:
    """The seconds that fill these slices: of all parts together, or of each where they go on at the same time."""
    if workload not in _AT_ONCE:
        noted = math.fsum(_seconds(workload, row.notes) for row in rows)
        return {"parts": noted} if own.notes else {}
    names = [name for name in own.notes if name.endswith("_s")]
    return {name: math.fsum(row.notes.get(name, 0.0) for row in rows) for name in names}


def _seconds(workload: str, notes: Mapping[str, float]) -> float:
    parts = [value for name, value in notes.items() if name.endswith("_s")]
    return max(parts, default=0.0) if workload in _AT_ONCE else math.fsum(parts)


def _inside(record: Record, rank: Rank) -> list[SliceRow]:
    """The slices in the window, whose latencies and parts reports show; all of a launch that has none."""
    window = record.mnb.window
    return [row for row in rank.slices if window is None or window.holds(row)]


def _worked_s(rows: Sequence[SliceRow]) -> float:
    return math.fsum(row.length_s - row.wait_s for row in rows)
