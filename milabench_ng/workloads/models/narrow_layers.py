"""Linear layers of a network in narrow numbers, for inference or for training: which there are, and what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.block_scaled import MX_BLOCK, MXFP8, NVFP4
from milabench_ng.workloads.models.float8_linear import Float8Product, magnitude, to_float8

Narrow = Literal["fp8", "mxfp8", "nvfp4"]
LEAST_CAPABILITY: Mapping[str, tuple[int, int]] = {"fp8": (8, 9), "mxfp8": (10, 0), "nvfp4": (10, 0)}
"""The first CUDA devices that multiply them."""
MARGIN = 2.0
"""How much larger inputs may be than those that a layer was calibrated with, before they leave the range of numbers."""
Largest = Mapping[nn.Module, Tensor]
"""The largest magnitude of what a layer was given."""


def refuse_narrow(device: torch.device, numbers: str) -> None:
    """Raise InputError for numbers that this GPU does not multiply; others than narrow ones go everywhere."""
    least = LEAST_CAPABILITY.get(numbers)
    if least is None or device.type != "cuda" or (has := torch.cuda.get_device_capability(device)) >= least:
        return
    found, needed = (".".join(map(str, capability)) for capability in (has, least))
    raise InputError(
        f"--numbers {numbers}: this GPU has compute capability {found}, and {numbers} needs {needed}. Use bf16"
    )


def refuse_parts_of_blocks(numbers: str, **sizes: int) -> None:
    """Raise InputError unless products of narrow numbers can have these sizes, by name."""
    for name, size in sizes.items() if numbers in LEAST_CAPABILITY else ():
        if size % MX_BLOCK:
            what = name.replace("_", " ")
            raise InputError(f"--numbers {numbers}: expected sizes in multiples of {MX_BLOCK}, got {size} ({what})")


@contextmanager
def calibrating(model: nn.Module) -> Iterator[Largest]:
    """A context that finds the largest input of each linear layer of ``model``, over all calls."""
    found: dict[nn.Module, Tensor] = {}

    def look(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        largest = magnitude(inputs[0])
        found[layer] = torch.maximum(found[layer], largest) if layer in found else largest

    hooks = [layer.register_forward_pre_hook(look) for layer in linear_layers(model)]
    yield found
    for hook in hooks:
        hook.remove()


def for_inference(model: nn.Module, numbers: Narrow, largest: Largest) -> None:
    """Convert the weights of all linear layers of ``model``, and from now on their inputs.

    They are changed in place: whoever watches one still does.

    ``largest``: of the inputs of each, which fixes scales that are not found in each call.
    """
    for layer in linear_layers(model):
        most = MARGIN * largest[layer]
        if numbers == "fp8":
            to_float8(layer, most)
        else:
            to_blocks(layer, BLOCKS[numbers], most)


def for_training(model: nn.Module, numbers: Literal["fp8", "mxfp8"]) -> None:
    """Have all linear layers of ``model`` multiply narrow numbers, forward and backward. Weights stay as they are."""
    for layer in linear_layers(model):
        layer.__class__ = TRAINED[numbers]


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    """Those of ``model`` that are not narrow."""
    return [layer for layer in model.modules() if type(layer) is nn.Linear]


class BlockLinear(nn.Linear):
    """A layer without bias whose weights are converted once, and its inputs in each call."""

    numbers: type[MXFP8 | NVFP4]
    largest: Tensor
    """Of the inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out], in the inputs' type."""
        weight: Any = self.numbers(self.weight, *(getattr(self, part) for part in self.numbers._fields[1:]))
        result: Tensor = self.numbers.of(inputs.flatten(0, -2), self.largest).times(weight, inputs.dtype)
        return result.view(*inputs.shape[:-1], -1)


class MXFP8Linear(BlockLinear):
    """In MXFP8."""

    numbers = MXFP8


class NVFP4Linear(BlockLinear):
    """In NVFP4."""

    numbers = NVFP4


def to_blocks(layer: nn.Linear, kind: type[BlockLinear], largest: Tensor) -> None:
    """Make ``layer`` one of ``kind``, in place. ``largest``: of its inputs."""
    weight = layer.weight.detach()
    narrow = kind.numbers.of(weight, magnitude(weight))
    layer.weight = nn.Parameter(narrow.values, requires_grad=False)
    for name, part in zip(narrow._fields[1:], narrow[1:], strict=True):
        layer.register_buffer(name, part)
    layer.register_buffer("largest", largest)
    layer.__class__ = kind


class MXFP8Product(torch.autograd.Function):
    """Inputs [R, K] times weights [C, K] transposed; gradients are in MXFP8, too (arXiv:2506.08027).

    Blocks lie along what a product sums over, so each of the three products has blocks of its own.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        """[R, C], in the inputs' type."""
        ctx.save_for_backward(inputs, weight)
        return MXFP8.of(inputs).times(MXFP8.of(weight), inputs.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Those of inputs and weights."""
        inputs, weight = ctx.saved_tensors
        (gradient,) = gradients
        of_inputs = MXFP8.of(gradient).times(MXFP8.of(weight.t()), gradient.dtype)
        of_weight = MXFP8.of(gradient.t()).times(MXFP8.of(inputs.t()), gradient.dtype)
        return of_inputs, of_weight


class TrainedLinear(nn.Linear):
    """A layer without bias whose products are narrow, and its weights are not."""

    product: type[torch.autograd.Function]

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out], in the inputs' type."""
        result: Tensor = self.product.apply(inputs.flatten(0, -2), self.weight)
        return result.view(*inputs.shape[:-1], -1)


class TrainedFloat8(TrainedLinear):
    """In fp8, with one scale a tensor."""

    product = Float8Product


class TrainedMXFP8(TrainedLinear):
    """In MXFP8."""

    product = MXFP8Product


BLOCKS: Mapping[str, type[BlockLinear]] = {"mxfp8": MXFP8Linear, "nvfp4": NVFP4Linear}
TRAINED: Mapping[str, type[TrainedLinear]] = {"fp8": TrainedFloat8, "mxfp8": TrainedMXFP8}
