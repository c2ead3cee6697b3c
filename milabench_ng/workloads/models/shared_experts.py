"""Routed experts that ranks share out: each token goes to those that its router chooses, wherever they are."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional as F

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.exchange import exchange
from milabench_ng.workloads.models.experts import dealt_out, permuted

ALIGNED = 8
"""Each expert's rows begin at a multiple of this: 16 bytes in bf16, as the fused kernel of `grouped_mm` may ask."""


class SharedExperts(nn.Module):
    """Each rank has as many experts; tokens travel to them and back (GShard, arXiv:2006.16668). No token is dropped.

    The router is trained, by what its experts say and by a loss that balances them (arXiv:2101.03961, of each text as
    in arXiv:2405.04434), which is added to the gradients but not to the loss that is told.
    """

    def __init__(self, size: Dimensions, mesh: DeviceMesh, balance: float) -> None:
        """``balance``: what the balancing loss of a layer counts."""
        super().__init__()
        self.size, self.balance = size, balance
        self.router = nn.Linear(size.width, size.experts, bias=False)
        self.own = size.experts // mesh.size()

        def shared(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(DTensor.from_local(torch.empty(self.own, rows, columns), mesh, [Shard(0)]))

        self.gate, self.up = shared(size.width, size.inner), shared(size.width, size.inner)
        self.down = shared(size.inner, size.width)
        self.copies: list[list[int]] = []
        """Of tokens, in the last forward pass, by the rank that they came from and the expert that they went to."""

    def forward(self, hidden: Tensor) -> Tensor:
        """States [N, L, D] of this rank's texts to [N, L, D]."""
        rows = hidden.flatten(0, 1)
        logits = self.router(rows).float()
        chosen_logits, chosen = logits.topk(self.size.active, 1)
        shares = chosen_logits.softmax(1).to(rows.dtype)
        order = chosen.flatten().argsort(stable=True)
        back = order.argsort()
        sorted_rows = dealt_out(rows, order // self.size.active, back)
        said = permuted(self._everywhere(sorted_rows, chosen), back, order)
        mixed = torch.bmm(shares[:, None], said.view(len(rows), self.size.active, -1)).view_as(hidden)
        if not torch.is_grad_enabled():
            return mixed
        unbalanced = imbalance(logits.view(*hidden.shape[:2], -1), chosen.view(*hidden.shape[:2], -1))
        counted: Tensor = AlsoMinimised.apply(mixed, self.balance * unbalanced)
        return counted

    def _everywhere(self, rows: Tensor, chosen: Tensor) -> Tensor:
        """What the experts of all ranks say of ``rows``, which are in the order of the experts."""
        for_each = torch.zeros(self.size.experts, dtype=torch.int64, device=rows.device)
        for_each.scatter_add_(0, chosen.flatten(), torch.ones_like(chosen.flatten()))
        copies = for_each.new_empty(self.size.experts // self.own, self.size.experts)
        dist.all_gather_into_tensor(copies.view(-1), for_each)
        self.copies = copies.tolist()
        rank = dist.get_rank()
        mine = slice(rank * self.own, (rank + 1) * self.own)
        sent = [sum(self.copies[rank][begin : begin + self.own]) for begin in range(0, self.size.experts, self.own)]
        come = [sum(row[mine]) for row in self.copies]
        return exchange(self._here(exchange(rows, sent, come), copies[:, mine]), come, sent)

    def _here(self, rows: Tensor, copies: Tensor) -> Tensor:
        """What this rank's experts say of ``rows``, which come rank by rank; ``copies``: [ranks, own experts]."""
        places, ends = aligned(copies, len(rows))
        gathered = rows.new_zeros(len(rows) + ALIGNED * self.own, rows.shape[1]).index_copy(0, places, rows)
        gate, up, down = (self._averaged(weights) for weights in (self.gate, self.up, self.down))
        inner = F.silu(F.grouped_mm(gathered, gate, offs=ends)) * F.grouped_mm(gathered, up, offs=ends)
        said: Tensor = TakenOnce.apply(F.grouped_mm(inner, down, offs=ends), places)
        return said

    def _averaged(self, weights: nn.Parameter) -> Tensor:
        """This rank's part; its gradients, which are those of the losses of all ranks, become those of their mean."""
        assert isinstance(weights, DTensor)
        part = weights.to_local()
        if part.requires_grad:
            ranks = self.size.experts // self.own
            part.register_hook(lambda gradient: gradient / ranks)  # type: ignore[no-untyped-call]
        return part


def aligned(copies: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Where rows go, and where each expert's end, so that those of an expert follow each other from a multiple on.

    ``copies``: rows [ranks, experts], which come in this order, ``count`` in all.
    """
    each = copies.sum(0)
    room = (each + ALIGNED - 1) // ALIGNED * ALIGNED
    ends = room.cumsum(0)
    begins = ends - room + copies.cumsum(0) - copies
    blocks = copies.flatten()
    moved = begins.flatten() - (blocks.cumsum(0) - blocks)
    places = torch.arange(count, device=copies.device) + moved.repeat_interleave(blocks, output_size=count)
    return places, ends.int()


def imbalance(logits: Tensor, chosen: Tensor) -> Tensor:
    """How unevenly texts use the experts, from 1: the mean over texts of the sum of share times probability.

    ``logits``: [N, L, experts]; ``chosen``: [N, L, active].
    """
    experts, active = logits.shape[-1], chosen.shape[-1]
    texts, length = logits.shape[:2]
    counts = logits.new_zeros(texts, experts).scatter_add_(
        1, chosen.flatten(1), torch.ones_like(chosen.flatten(1), dtype=logits.dtype)
    )
    shares = counts * (experts / active / length)
    return (shares * logits.softmax(-1).mean(1)).sum(1).mean()


class AlsoMinimised(Function):
    """A value as it is, and another loss, which gets a gradient of 1 with it."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, loss: Tensor) -> Tensor:
        """``value``."""
        ctx.like = loss.new_ones(())
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of the value, and 1."""
        return gradients[0], ctx.like


class TakenOnce(Function):
    """Some rows, each once; backward writes into places, where autograd's would add."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        """``rows[places]``."""
        ctx.save_for_backward(places)
        ctx.count = len(rows)
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Those of the taken rows; 0 for the others."""
        (places,) = ctx.saved_tensors
        return gradients[0].new_zeros(ctx.count, gradients[0].shape[1]).index_copy_(0, places, gradients[0]), None
