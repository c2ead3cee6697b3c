"""Linear layers in fp8 (e4m3, arXiv:2209.05433) for inference, with one scale a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
LEAST_CAPABILITY = (8, 9)
"""The first CUDA devices that multiply fp8."""
MARGIN = 2.0
"""How much larger inputs may be than those that a layer was calibrated with, before they leave the numbers of fp8."""


class Float8Linear(nn.Linear):
    """A layer without bias whose weights are converted once, and its inputs in each call, with scales known before."""

    scale: Tensor
    input_scale: Tensor
    to_input: Tensor
    """One over the former."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out], in the inputs' type."""
        result: Tensor = torch._scaled_mm(
            (inputs.flatten(0, -2) * self.to_input).to(FP8),
            self.weight.t(),
            scale_a=self.input_scale,
            scale_b=self.scale,
            out_dtype=inputs.dtype,
            use_fast_accum=True,
        )
        return result.view(*inputs.shape[:-1], -1)


def narrowed(values: Tensor) -> tuple[Tensor, Tensor]:
    """``values`` in fp8, divided by a scale in fp32 that makes their largest the largest number of fp8."""
    scale = scale_for(magnitude(values))
    return (values / scale).to(FP8), scale


def magnitude(values: Tensor) -> Tensor:
    """The largest, in fp32: one pass, without a copy of magnitudes."""
    largest: Tensor = torch.linalg.vector_norm(values, math.inf, dtype=torch.float32)
    return largest


def scale_for(largest: Tensor) -> Tensor:
    """What to divide by so that ``largest`` becomes the largest number of fp8."""
    return (largest / LARGEST).clamp_min(1e-12)


Largest = Mapping[nn.Module, Tensor]
"""The largest magnitude of what a layer was given."""


@contextmanager
def calibrating(model: nn.Module) -> Iterator[Largest]:
    """A context that finds it for each linear layer of ``model``, over all calls."""
    found: dict[nn.Module, Tensor] = {}

    def look(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        largest = magnitude(inputs[0])
        found[layer] = torch.maximum(found[layer], largest) if layer in found else largest

    hooks = [layer.register_forward_pre_hook(look) for layer in model.modules() if type(layer) is nn.Linear]
    yield found
    for hook in hooks:
        hook.remove()


def to_float8(model: nn.Module, largest: Largest) -> None:
    """Make all linear layers of ``model`` `Float8Linear`, in place: whoever watches a layer still does.

    ``largest``: of the inputs of each, which fixes their scales.
    """
    for layer in model.modules():
        if type(layer) is nn.Linear:
            narrow(layer, scale_for(MARGIN * largest[layer]))


def narrow(layer: nn.Linear, input_scale: Tensor) -> None:
    """Convert one layer, whose inputs are divided by ``input_scale``."""
    weight, scale = narrowed(layer.weight.detach())
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.register_buffer("scale", scale)
    layer.register_buffer("input_scale", input_scale)
    layer.register_buffer("to_input", 1 / input_scale)
    layer.__class__ = Float8Linear
