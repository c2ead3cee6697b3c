"""Arithmetic of all CPUs, out of their own caches."""

import torch

from milabench_ng.bench import Bench, Derived, workload
from milabench_ng.workloads.antagonists.pressing import Busy, paced

SIDE = 128
"""Of a matrix: three of them, in fp32, fit a core's second cache."""
ROUNDS = 64
"""Products of each thread in a step."""


@workload(
    unit="products",
    bound="cpu",
    cpu_only=True,
    ram_gib=0.5,
    derived=(Derived("GFLOP/s", f"rate * {2 * SIDE**3} / 1e9"),),
)
def vector_math(bench: Bench, *, busy: Busy = 1.0) -> None:
    """Multiply small matrices on all CPUs of the tenant: presses on arithmetic units, power and clocks.

    Products of fp32 matrices of 128 x 128, which stay in a core's caches. An item is one product. Timed:
    everything, pauses included.

    Options:
        busy: share of the time in which it works.
    """
    count = ROUNDS * torch.get_num_threads()
    left, right = (torch.rand(count, SIDE, SIDE) for _ in range(2))
    product = torch.empty(count, SIDE, SIDE)
    for _ in bench.measure(paced(busy), count=count):
        torch.bmm(left, right, out=product)
