"""Workloads whose memory grows with their batch, named by path in the tests' profiles."""

from __future__ import annotations

import time
from itertools import repeat
from typing import Annotated

import torch
import torch.distributed as dist
from msgspec import Meta
from torch import Tensor

from milabench_ng.bench import Bench, workload

Count = Annotated[int, Meta(ge=1)]


def pieces(count: int, mib: int) -> Tensor:
    """So many of them, written to."""
    return torch.ones(count, mib, 1 << 20, dtype=torch.uint8)


@workload(unit="items", auto_batch=True)
def growing(bench: Bench, *, batch_size: Count = 1, mib: Count = 32, wrong_from: int = 0) -> None:
    """Fills RAM in proportion to its batch, once. An item is a piece of it. Timed: a short sleep.

    Options:
        batch_size: pieces.
        mib: MiB of a piece.
        wrong_from: the batch size from which on it raises; 0 for none.
    """
    held: Tensor | None = None
    for _ in bench.measure(repeat(None), count=batch_size):
        if 0 < wrong_from <= batch_size:
            raise ValueError(f"a batch of {batch_size} is more than there is")
        if held is None:
            held = pieces(batch_size, mib)
        time.sleep(0.01)


@workload(unit="items", auto_batch=True, distributed=True)
def growing_ranks(bench: Bench, *, batch_size: Count = 1, mib: Count = 32) -> None:
    """The same in ranks that wait for each other. An item is a piece of RAM. Timed: one collective, and a short sleep.

    Options:
        batch_size: pieces.
        mib: MiB of a piece.
    """
    held: Tensor | None = None
    for _ in bench.measure(repeat(None), count=batch_size):
        if held is None:
            held = pieces(batch_size, mib)
        dist.all_reduce(torch.ones(1))
        time.sleep(0.01)


@workload(unit="items", auto_batch=True)
def ends(bench: Bench, *, batch_size: Count = 1) -> None:
    """Cannot work with any batch size. An item is nothing. Timed: nothing.

    Options:
        batch_size: items.
    """
    for _ in bench.measure(repeat(None), count=batch_size):
        raise RuntimeError("the planned accident")
