"""LAMB: Adam with a step of its own for each weight matrix, in proportion to the matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

LARGEST_NORM = 10.0


class Lamb(Optimizer):
    """LAMB (You et al., arXiv:1904.00962) without bias correction and weight decay.

    The update of a parameter is scaled by its norm, at most 10, over that of the update; by 1 if a norm is 0.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
    ) -> None:
        """``lr``: 0 leaves the parameters as they are. ``betas``: as Adam's. ``eps``: keeps both quotients finite."""
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 - the interface of torch
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                _update(parameters, [self._moments(parameter) for parameter in parameters], group)

    def _moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """The running means of a parameter's gradient and of its square."""
        state = self.state[parameter]
        if not state:
            state["mean"], state["square"] = (torch.zeros_like(parameter) for _ in range(2))
        return state["mean"], state["square"]


def _update(parameters: list[Tensor], moments: list[tuple[Tensor, Tensor]], group: dict[str, Any]) -> None:
    means, squares = (list(moment) for moment in zip(*moments, strict=True))
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    first, second = group["betas"]
    torch._foreach_lerp_(means, gradients, 1 - first)
    torch._foreach_mul_(squares, second)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, group["eps"])
    updates = torch._foreach_div(means, roots)
    weights = torch.stack(torch._foreach_norm(parameters)).clamp(max=LARGEST_NORM)
    steps = torch.stack(torch._foreach_norm(updates))
    trust = torch.where((weights == 0) | (steps == 0), 1.0, weights / (steps + group["eps"]))
    torch._foreach_mul_(updates, list(trust.unbind()))
    torch._foreach_add_(parameters, updates, alpha=-group["lr"])
