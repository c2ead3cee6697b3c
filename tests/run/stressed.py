"""Burns on devices that make errors: the hook that injects them exists here, and the product has none."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, WholeNumber, workload
from milabench_ng.bench.bench import OWN
from milabench_ng.workloads.stress.burn import burn_on
from milabench_ng.workloads.stress.chain import Chain

PRODUCTS = 4


def is_tenant(bench: Bench, number: int) -> bool:
    return bench._own_seed == bench.seed + number + OWN


def flip(tensor: Tensor, bit: int) -> None:
    content = tensor.view(torch.uint8).flatten()
    content[bit // 8] ^= 1 << bit % 8


@workload(unit="products")
def transient(bench: Bench, *, on: WholeNumber = 1, side: Count = 64) -> None:
    """A burn in which one tenant has a bit flip in the second product of its 21st lap. Timed: products.

    Options:
        on: the tenant.
        side: of the matrices.
    """
    count, product = itertools.count(), Chain.product

    def faulty(chain: Chain, left: Tensor, out: Tensor) -> None:
        product(chain, left, out)
        if next(count) == 20 * PRODUCTS + 1 and is_tenant(bench, on):
            flip(out, 1000)

    Chain.product = faulty  # type: ignore[method-assign]  # in this process only
    burn_on(bench, "fp32", side, PRODUCTS, 0.0)


@workload(unit="products")
def permanent(bench: Bench, *, on: WholeNumber = 1, side: Count = 64) -> None:
    """A burn in which one tenant has a bit flipped before its first lap: all its laps agree. Timed: products.

    Options:
        on: the tenant.
        side: of the matrices.
    """
    made = Chain.__init__

    def faulty(chain: Chain, device: torch.device, side: int, products: int) -> None:
        made(chain, device, side, products)
        if is_tenant(bench, on):
            flip(chain.start, 1000)

    Chain.__init__ = faulty  # type: ignore[method-assign]
    burn_on(bench, "fp32", side, PRODUCTS, 0.0)
