"""Linear layers in fp8 (e4m3, arXiv:2209.05433) for inference, with one scale a tensor."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
LEAST_CAPABILITY = (8, 9)
"""The first CUDA devices that multiply fp8."""


class Float8Linear(nn.Linear):
    """A layer without bias whose weights are converted once, and whose inputs are converted in each call."""

    scale: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out], in the inputs' type."""
        narrow, scale = narrowed(inputs.flatten(0, -2))
        rows: Tensor = torch._scaled_mm(
            narrow, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=inputs.dtype, use_fast_accum=True
        )
        return rows.view(*inputs.shape[:-1], -1)


def narrowed(values: Tensor) -> tuple[Tensor, Tensor]:
    """``values`` in fp8, divided by a scale in fp32 that makes their largest the largest number of fp8."""
    largest = torch.linalg.vector_norm(values, math.inf, dtype=torch.float32)  # one pass, without a copy of magnitudes
    scale = (largest / LARGEST).clamp_min(1e-12)
    return (values / scale).to(FP8), scale


def to_float8(model: nn.Module) -> None:
    """Make all linear layers of ``model`` `Float8Linear`, in place: whoever watches a layer still does."""
    for layer in model.modules():
        if type(layer) is nn.Linear:
            narrow(layer)


def narrow(layer: nn.Linear) -> None:
    """Convert one layer."""
    weight, scale = narrowed(layer.weight.detach())
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.register_buffer("scale", scale)
    layer.__class__ = Float8Linear
