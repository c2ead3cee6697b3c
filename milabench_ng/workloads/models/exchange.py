"""All-to-all between the ranks of a model, which gradients go back through."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

Counts = list[int] | None
"""Rows for each rank; None for equally many."""


def exchange(sent: Tensor, for_each: Counts = None, of_each: Counts = None) -> Tensor:
    """Part j of the rows of ``sent`` goes to rank j; part i of the result comes from rank i. So do gradients go back.

    ``for_each``: rows of the parts that are sent; ``of_each``: of those that come.
    """
    received: Tensor = _Exchange.apply(sent, for_each, of_each)
    return received


class _Exchange(Function):
    @staticmethod
    def forward(ctx: Any, sent: Tensor, for_each: Counts, of_each: Counts) -> Tensor:
        """Rows of all ranks."""
        ctx.counts = of_each, for_each
        return _all_to_all(sent, for_each, of_each)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Gradients of the rows that were sent: of the sum of the losses of all ranks."""
        return _all_to_all(gradients[0], *ctx.counts), None, None


def _all_to_all(sent: Tensor, for_each: Counts, of_each: Counts) -> Tensor:
    sent = sent.contiguous()
    received = torch.empty_like(sent) if of_each is None else sent.new_empty(sum(of_each), *sent.shape[1:])
    dist.all_to_all_single(received, sent, of_each, for_each)
    return received
