"""What the ranks of a process group do in tests; light, since every rank imports it anew."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from recording import Recording, bench_on

from milabench_ng.events import Done, Slice
from milabench_ng.workloads.modern.collectives import collectives


def messages(steps: int, rank: int) -> Recording:
    channel = Recording(last=steps)
    bench = bench_on(channel)
    bench.rank = rank
    collectives(bench, small_kib=1, large_mib=1, block_mib=1, exchange_mib=1)
    return channel


def talk(rank: int) -> tuple[int, list[dict[str, float]]]:
    channel = messages(2, rank)
    return channel.one(Done).count, [event.notes for event in channel.all(Slice)]


def lie(rank: int) -> None:
    """Rank 1 gathers its own part into a block wrongly, as a bad link would, and sums it up so."""
    gather = dist.all_gather_into_tensor

    def wrongly(out: torch.Tensor, part: torch.Tensor) -> None:
        gather(out, part)
        if rank == 1:
            out[len(part)] += 1

    dist.all_gather_into_tensor = wrongly  # type: ignore[assignment]
    try:
        messages(1, rank)
    finally:
        dist.all_gather_into_tensor = gather
