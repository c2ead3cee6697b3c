"""Random reads of memory, each of which says where the next one is."""

import torch

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, paced

CHAINS = 1 << 14
"""Chains that each thread follows side by side."""


@workload(unit="reads", bound="cpu", cpu_only=True, ram_gib=2)
def pointer_chase(bench: Bench, *, mib: Count = 512, busy: Busy = 1.0) -> None:
    """Follow chains of pointers through memory on all CPUs of the tenant: presses on the last cache and on latency.

    One cycle through all places of an array, in random order (Sattolo, 1986); thousands of chains on it advance
    together. An item is one read of 8 bytes. Timed: everything, pauses included.

    Options:
        mib: MiB of the array; it should be several times the last cache.
        busy: share of the time in which it works.
    """
    following = cycle(mib * MIB // 8)
    places = torch.randperm(len(following))[: CHAINS * torch.get_num_threads()]
    for _ in bench.measure(paced(busy), count=len(places)):
        places = following[places]


def cycle(length: int) -> torch.Tensor:
    """For each of ``length`` places, the next one on a random cycle through all: int64 [length]."""
    order = torch.randperm(length)
    following = torch.empty_like(order)
    following[order] = order.roll(-1)
    return following
