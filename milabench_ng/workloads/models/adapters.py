"""Low-rank adapters (LoRA, arXiv:2106.09685) on a frozen transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.transformer import Attention, FeedForward, Transformer

SCALE = 2.0
"""Of what an adapter adds: alpha is twice the rank."""


class AdaptedLinear(nn.Linear):
    """A frozen linear layer without bias, and a product of two small matrices beside it."""

    def __init__(self, in_features: int, out_features: int, rank: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.weight.requires_grad_(False)
        self.into = nn.Parameter(torch.empty(rank, in_features))
        self.out = nn.Parameter(torch.empty(out_features, rank))

    def forward(self, input: Tensor) -> Tensor:  # the name that nn.Linear gives it
        """[..., in] to [..., out]."""
        return F.linear(input, self.weight) + F.linear(F.linear(input, self.into), self.out * SCALE)


class AdaptedTransformer(Transformer):
    """A frozen transformer with adapters of one rank on the seven linear layers of each block.

    At first they add nothing: the second matrix of each is zero.
    """

    def __init__(self, size: Dimensions, rank: int, *, chunk: int = 4096, recompute: bool = False) -> None:
        super().__init__(size, chunk=chunk, recompute=recompute)
        self.requires_grad_(False)
        for part in list(self.modules()):
            if isinstance(part, Attention | FeedForward):
                for name, layer in list(part.named_children()):
                    setattr(part, name, AdaptedLinear(layer.in_features, layer.out_features, rank))  # type: ignore[arg-type]

    def reset_parameters(self) -> None:
        """Draw the weights, and let the adapters add nothing."""
        super().reset_parameters()
        for module in self.modules():
            if isinstance(module, AdaptedLinear):
                nn.init.zeros_(module.out)

    def trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.parameters() if parameter.requires_grad]
