"""Cross entropy over a large vocabulary, in pieces: the logits of all tokens never exist at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class ChunkedLoss(torch.autograd.Function):
    """Mean cross entropy of ``states @ weight.T`` with the next tokens.

    The gradients are made on the way forward, piece by piece, so nothing is computed twice and a piece needs about
    12 bytes per token and word. Those of the weight are summed in its own type, as autograd would.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, following: Tensor, chunk: int) -> Tensor:
        """States [N, D], weight [V, D], following [N] of int64; ``chunk``: tokens of a piece."""
        ctx.wanted = weight.requires_grad
        of_states = torch.empty_like(states)
        of_weight = torch.zeros_like(weight) if ctx.wanted else None
        total = states.new_zeros((), dtype=torch.float32)
        pieces = (torch.split(each, chunk) for each in (states, following, of_states))
        for some, targets, gradient in zip(*pieces, strict=True):
            logits = F.linear(some, weight).float()
            norm = logits.logsumexp(1)
            total += (norm - logits.gather(1, targets[:, None])[:, 0]).sum()
            share = torch.exp(logits.sub_(norm[:, None])).div_(len(states))
            share.scatter_add_(1, targets[:, None], torch.full_like(norm[:, None], -1 / len(states)))
            narrow = share.to(weight.dtype)
            torch.mm(narrow, weight, out=gradient)
            if of_weight is not None:
                of_weight.addmm_(narrow.t(), some)
        ctx.save_for_backward(of_states, of_weight)
        return total / len(states)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Those made before, times that of the loss."""
        (gradient,) = gradients
        of_states, of_weight = ctx.saved_tensors
        return of_states * gradient.to(of_states.dtype), _scaled(of_weight, gradient), None, None


def _scaled(made: Tensor | None, gradient: Tensor) -> Tensor | None:
    return None if made is None else made.mul_(gradient.to(made.dtype))


def chunked_loss(states: Tensor, weight: Tensor, following: Tensor, chunk: int) -> Tensor:
    """Mean cross entropy, in fp32, of the logits of ``states`` [..., D] with ``following`` [...]."""
    loss: Tensor = ChunkedLoss.apply(states.flatten(0, -2), weight, following.flatten().long(), chunk)
    return loss
