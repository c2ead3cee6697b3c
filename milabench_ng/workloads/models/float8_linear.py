"""Linear layers in fp8 (e4m3, arXiv:2209.05433) for inference, with one scale a tensor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
LEAST_CAPABILITY = (8, 9)
"""The first CUDA devices that multiply fp8."""


class Float8Linear(nn.Module):
    """A layer without bias whose weights are converted once, and whose inputs are converted in each call."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = narrowed(layer.weight.detach())
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", scale)
        self.scale: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out], in the inputs' type."""
        narrow, scale = narrowed(inputs.flatten(0, -2))
        rows: Tensor = torch._scaled_mm(
            narrow, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=inputs.dtype, use_fast_accum=True
        )
        return rows.view(*inputs.shape[:-1], -1)


def narrowed(values: Tensor) -> tuple[Tensor, Tensor]:
    """``values`` in fp8, divided by a scale in fp32 that makes their largest the largest number of fp8."""
    scale = (values.abs().amax().float() / LARGEST).clamp_min(1e-12)
    return (values / scale).to(FP8), scale


def to_float8(model: nn.Module) -> None:
    """Make all linear layers of ``model`` `Float8Linear`, one after the other; their own weights are freed."""
    for part in list(model.modules()):
        for name, layer in list(part.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(part, name, Float8Linear(layer))
                del layer.weight  # whoever watches the layer still holds it
