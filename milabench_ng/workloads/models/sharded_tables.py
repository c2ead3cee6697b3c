"""Embedding tables in fp32 that ranks share out, with their own optimizer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from milabench_ng.workloads.models.exchange import exchange


class ShardedTables:
    """One rank's tables, for the samples of all ranks; SGD works on a row when its gradient is there.

    They are whole, or a rank's columns of a table that all ranks have a part of.

    Each rank sends the sums of the rows that a sample names to the rank that has the sample: one all-to-all forward and
    one backward. A single rank sends nothing.
    """

    def __init__(self, tables: int, rows: int, width: int, rate: float, device: torch.device, ranks: int) -> None:
        """``tables``: of this rank. ``rows``: of each. ``rate``: the learning rate."""
        bound = 1 / math.sqrt(rows)
        self.rows = torch.empty(tables * rows, width, device=device).uniform_(-bound, bound)
        """Rows of all tables, one after the other."""
        self._begins = rows * torch.arange(tables, device=device).view(1, tables, 1)
        self._count = rows
        self._rate = rate / ranks
        """Gradients come from the losses of all ranks, and are to be those of their mean."""
        self._ranks = ranks
        self._anchor = torch.zeros((), device=device, requires_grad=True)
        """So that autograd, which does not know the rows, goes back to them."""

    def __call__(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Sums [N, all tables, width] in ``dtype`` of the rows that this rank's samples name.

        ``ids``: int32 [ranks * N, tables, hot], of the samples of all ranks, taken modulo the rows of a table.
        """
        places = ids.remainder(self._count) + self._begins
        sums: Tensor = RowSums.apply(self._anchor, self.rows, places, self._rate)
        sums = sums.to(dtype)
        if self._ranks == 1:
            return sums
        received = exchange(sums.unflatten(0, (self._ranks, -1)))  # type: ignore[no-untyped-call]
        return received.transpose(0, 1).flatten(1, 2)


class RowSums(Function):
    """Sums of rows; going back, the rows move against their gradients."""

    @staticmethod
    def forward(ctx: Any, _anchor: Tensor, rows: Tensor, places: Tensor, rate: float) -> Tensor:
        """Rows [R, width] at ``places`` [N, tables, hot] to sums [N, tables, width]."""
        ctx.rows, ctx.places, ctx.rate = rows, places, rate
        return F.embedding_bag(places.flatten(0, 1), rows, mode="sum").view(*places.shape[:2], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        """Add to each row the gradients of all sums that it is in, times the negative rate."""
        each = gradient.unsqueeze(2).expand(*ctx.places.shape, -1)
        ctx.rows.index_add_(0, ctx.places.flatten(), each.reshape(-1, gradient.shape[-1]), alpha=-ctx.rate)
        return None, None, None, None
