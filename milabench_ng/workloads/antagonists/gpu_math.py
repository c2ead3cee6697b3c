"""Arithmetic and power of the tenant's GPU."""

import torch

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.workloads.antagonists.pressing import Busy, finish, paced

PRODUCTS = 10
"""In a step."""


@workload(
    unit="products",
    most_items="10",
    bound="gpu-compute",
    precision="bf16",
    derived=(Derived("TFLOP/s", "rate * 2 * side * side * side / 1e12"),),
)
def gpu_math(bench: Bench, *, side: Count = 8192, busy: Busy = 1.0) -> None:
    """Multiply large matrices in bf16 on the device: presses on power and cooling, or on a GPU that is shared.

    An item is one product. Timed: everything, pauses included.

    Options:
        side: of the square matrices.
        busy: share of the time in which it works.
    """
    left, right = (torch.randn(side, side, device=bench.device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    for _ in bench.measure(paced(busy), count=PRODUCTS):
        for _ in range(PRODUCTS):
            torch.mm(left, right, out=product)
        finish(bench.device)
