"""Routed experts (arXiv:1701.06538) whose products are one call for all experts."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.workloads.models.dimensions import Dimensions

Products = Literal["grouped_mm", "batched"]
"""How the products of all experts are made.

``grouped_mm``: PyTorch's call for groups of any size. ``batched``: one batched product, since the groups are equal.
"""
FUSED_FROM, FUSED_BEFORE = (9, 0), (11, 0)
"""Compute capabilities of which PyTorch has a fused kernel of the former. Others get a loop over the experts that waits
for the device in each call."""


def products_for(device: torch.device) -> Products:
    """Those of a device: the batched ones unless a kernel is there for the others."""
    if device.type != "cuda" or torch.version.hip:
        return "batched"
    return "grouped_mm" if FUSED_FROM <= torch.cuda.get_device_capability(device) < FUSED_BEFORE else "batched"


class Experts(nn.Module):
    """Each token goes through a few experts, and the router's probabilities weigh what they say.

    Which experts is dealt, so that all have the same work: as many tokens as it takes share out a shuffle of all
    experts. The router learns how much each counts.
    """

    products: Products = "grouped_mm"

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.size = size
        self.router = nn.Linear(size.width, size.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(size.experts, size.width, size.inner))
        self.up = nn.Parameter(torch.empty(size.experts, size.width, size.inner))
        self.down = nn.Parameter(torch.empty(size.experts, size.inner, size.width))
        self._dealt: Dealt | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] to [..., D]. All calls need the same number of tokens, whose deal is made in the first."""
        rows = hidden.flatten(0, -2)
        if self._dealt is None:
            self._dealt = Dealt(len(rows), self.size.experts, self.size.active, rows.device)
        dealt = self._dealt
        shares = self.router(rows).float().softmax(1).gather(1, dealt.chosen).to(rows.dtype)
        sorted_rows = dealt_out(rows, dealt.tokens, dealt.back)
        inner = F.silu(self._product(sorted_rows, self.gate)) * self._product(sorted_rows, self.up)
        said = permuted(self._product(inner, self.down), dealt.back, dealt.order)
        mixed = torch.bmm(shares[:, None], said.view(len(rows), self.size.active, -1))
        return mixed.view_as(hidden)

    def _product(self, rows: Tensor, weights: Tensor) -> Tensor:
        assert self._dealt is not None
        if self.products == "grouped_mm":
            return F.grouped_mm(rows, weights, offs=self._dealt.ends)
        return torch.bmm(rows.view(len(weights), -1, rows.shape[1]), weights).flatten(0, 1)


class Dealt:
    """Which experts each token goes through, and the order of tokens by expert."""

    def __init__(self, tokens: int, experts: int, active: int, device: torch.device) -> None:
        """Shuffles with torch's random numbers; ``tokens`` must be a multiple of ``experts / active``."""
        shuffles = torch.rand(tokens * active // experts, experts).argsort(1)
        chosen = shuffles.view(tokens, active)
        order = chosen.flatten().argsort(stable=True)
        self.chosen = chosen.to(device)
        self.order = order.to(device)
        """Copies of tokens, by expert."""
        self.tokens = (order // active).to(device)
        """Whose copies these are."""
        self.back = order.argsort().to(device)
        """Where each copy is in that order."""
        self.ends = (torch.arange(1, experts + 1, dtype=torch.int32) * (tokens * active // experts)).to(device)
        """The end of each expert's rows."""


class DealtOut(torch.autograd.Function):
    """Copies of rows; backward is a gather and a sum, where autograd's would add into places."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, tokens: Tensor, back: Tensor) -> Tensor:
        """Row i is row ``tokens[i]``; in the order ``back``, the copies of a row are neighbours."""
        ctx.save_for_backward(back)
        ctx.rows = len(rows)
        return rows.index_select(0, tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The sums of the copies' gradients."""
        (back,) = ctx.saved_tensors
        return gradients[0].index_select(0, back).view(ctx.rows, -1, gradients[0].shape[1]).sum(1), None, None


class Permuted(torch.autograd.Function):
    """Rows in another order; backward is a gather too, where autograd's would add into places."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        """Row i is row ``order[i]``; ``back`` undoes it."""
        ctx.save_for_backward(back)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradients in the old order."""
        (back,) = ctx.saved_tensors
        return gradients[0].index_select(0, back), None, None


def permuted(rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """``rows[order]``, where ``back`` is the inverse of ``order``."""
    result: Tensor = Permuted.apply(rows, order, back)
    return result


def dealt_out(rows: Tensor, tokens: Tensor, back: Tensor) -> Tensor:
    """``rows[tokens]``, where every row has as many copies, which ``back`` makes neighbours."""
    result: Tensor = DealtOut.apply(rows, tokens, back)
    return result
