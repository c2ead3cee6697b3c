"""Linear layers in fp8 (arXiv:2209.05433), with one scale a tensor: for inference with fixed ones, and for training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
OF_GRADIENTS = torch.float8_e5m2
"""Which have a wider range, and fewer bits."""


class Float8Linear(nn.Linear):
    """A layer without bias whose weights are converted once, and its inputs in each call, with scales known before."""

    scale: Tensor
    input_scale: Tensor
    to_input: Tensor
    """One over the former."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out], in the inputs' type."""
        narrow = (inputs.flatten(0, -2) * self.to_input).to(FP8)
        result = _times((narrow, self.input_scale), (self.weight, self.scale), inputs.dtype, fast=True)
        return result.view(*inputs.shape[:-1], -1)


def narrowed(values: Tensor, dtype: torch.dtype = FP8) -> tuple[Tensor, Tensor]:
    """``values`` in fp8, divided by a scale in fp32 that makes their largest the largest number of ``dtype``."""
    scale = scale_for(magnitude(values), dtype)
    return (values / scale).to(dtype), scale


def magnitude(values: Tensor) -> Tensor:
    """The largest, in fp32: one pass, without a copy of magnitudes."""
    largest: Tensor = torch.linalg.vector_norm(values, math.inf, dtype=torch.float32)
    return largest


def scale_for(largest: Tensor, dtype: torch.dtype = FP8) -> Tensor:
    """What to divide by so that ``largest`` becomes the largest number of ``dtype``."""
    return (largest / torch.finfo(dtype).max).clamp_min(1e-12)


def to_float8(layer: nn.Linear, largest: Tensor) -> None:
    """Make ``layer`` a `Float8Linear`, in place: whoever watches it still does.

    ``largest``: of its inputs, which fixes their scale.
    """
    weight, scale = narrowed(layer.weight.detach())
    input_scale = scale_for(largest)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.register_buffer("scale", scale)
    layer.register_buffer("input_scale", input_scale)
    layer.register_buffer("to_input", 1 / input_scale)
    layer.__class__ = Float8Linear


class Float8Product(torch.autograd.Function):
    """Inputs [R, K] times weights [C, K] transposed, whose scales are found in each call; so are those of gradients."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        """[R, C], in the inputs' type."""
        left, right = narrowed(inputs), narrowed(weight)
        ctx.save_for_backward(*left, *right)
        return _times(left, right, inputs.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Those of inputs and weights: two more products in fp8, of what was kept."""
        inputs, of_inputs, weight, of_weight = ctx.saved_tensors
        (gradient,) = gradients
        values, scale = narrowed(gradient, OF_GRADIENTS)
        turned = values.t().contiguous(), scale
        return (
            _times((values, scale), (weight.t().contiguous(), of_weight), gradient.dtype, fast=False),
            _times(turned, (inputs.t().contiguous(), of_inputs), gradient.dtype, fast=False),
        )


def _times(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], dtype: torch.dtype, *, fast: bool) -> Tensor:
    """Of two matrices and their scales, [R, K] times [C, K] transposed. ``fast``: sums with fewer bits on Hopper."""
    product: Tensor = torch._scaled_mm(
        left[0], right[0].t(), scale_a=left[1], scale_b=right[1], out_dtype=dtype, use_fast_accum=fast
    )
    return product
