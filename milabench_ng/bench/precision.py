"""Precision modes, and a probe that shows which one really ran.

``fp32`` switches TF32 off for matrix products and convolutions: "fp32" of 2020 was true fp32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from milabench_ng.bench.loss_scale import Dynamic, Static, Unscaled, parameters_of
from milabench_ng.bench.moving import local
from milabench_ng.records.precision_seen import FP32_ERROR, TF32_ERROR


class Precision:
    """True fp32; base of the other modes."""

    allow_tf32 = False
    """In matrix products."""
    tf32_convolutions = False
    input_dtype: torch.dtype | None = None
    """The type that floating-point inputs are converted to."""
    masters = False
    """Whether the weights have fp32 masters."""
    scaling: type[Unscaled] = Unscaled

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.scale = self.scaling(device)
        torch.backends.cuda.matmul.allow_tf32 = self.allow_tf32
        torch.backends.cudnn.allow_tf32 = self.tf32_convolutions

    def cast(self, module: nn.Module) -> None:
        """Convert the parameters of ``module`` in place."""

    def context(self) -> AbstractContextManager[object]:
        return nullcontext()

    def step(self, loss: Tensor, optimizer: Optimizer, clip_norm: float | None) -> None:
        """Gradients of ``loss``, clipped to a total norm if one is given, and one optimizer step."""
        self.backward(loss, optimizer)
        self.apply(optimizer, clip_norm)

    def backward(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Leave the gradients of ``loss``, without any scale, in the parameters of the optimizer."""
        optimizer.zero_grad(set_to_none=True)
        self.scale.backward(loss)
        self.scale.unscale(optimizer)

    def gradients(self, optimizer: Optimizer) -> list[Tensor]:
        """The gradients that `apply` will step with, not yet clipped."""
        return [parameter.grad for parameter in parameters_of(optimizer) if parameter.grad is not None]

    def apply(self, optimizer: Optimizer, clip_norm: float | None) -> None:
        """One optimizer step with these gradients, clipped to a total norm if one is given."""
        clip(parameters_of(optimizer), clip_norm)
        self.scale.step(optimizer)


class TF32(Precision):
    """fp32 storage, TF32 matrix products and convolutions if the device has them."""

    allow_tf32 = tf32_convolutions = True


class TorchDefault(Precision):
    """What PyTorch does unasked since 1.12: convolutions in TF32 if the device has it, matrix products in fp32."""

    tf32_convolutions = True


class BF16(Precision):
    """bf16 autocast: fp32 weights, no loss scaling."""

    def context(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


class AMP(Precision):
    """fp16 autocast with a dynamic loss scale: fp32 weights."""

    scaling = Dynamic

    def context(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=torch.float16)


class Half(Precision):
    """Pure fp16: weights, activations, gradients and optimizer state."""

    input_dtype = torch.float16

    def cast(self, module: nn.Module) -> None:
        """Convert everything to fp16."""
        module.half()


class HalfMaster(Precision):
    """fp16 weights and activations, batch normalisation in fp32, fp32 master weights, dynamic loss scale.

    The mixed precision of 2020 (Micikevicius et al., arXiv:1710.03740), without autocast.
    """

    input_dtype = torch.float16
    masters = True
    scaling: type[Unscaled] = Dynamic

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.pairs: dict[Optimizer, tuple[list[Tensor], list[Tensor]]] = {}

    def cast(self, module: nn.Module) -> None:
        """Convert all but batch normalisation to fp16."""
        module.half()
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.float()

    def backward(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Gradients of the fp16 weights, copied to the fp32 masters and unscaled there."""
        if optimizer not in self.pairs:
            self.pairs[optimizer] = give_masters(optimizer, torch.float16)
        weights, masters = self.pairs[optimizer]
        optimizer.zero_grad(set_to_none=True)
        for weight in weights:
            weight.grad = None
        self.scale.backward(loss)
        for weight, master in zip(weights, masters, strict=True):
            master.grad = torch.empty_like(master) if weight.grad is not None else None
        torch._foreach_copy_(
            [master.grad for master in masters if master.grad is not None],
            [weight.grad for weight in weights if weight.grad is not None],
        )
        self.scale.unscale(optimizer)

    def apply(self, optimizer: Optimizer, clip_norm: float | None) -> None:
        """A step on the fp32 masters, copied back to the fp16 weights."""
        super().apply(optimizer, clip_norm)
        weights, masters = self.pairs[optimizer]
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)


class HalfMasterStatic(HalfMaster):
    """The same with a static loss scale of 128, as in 2020's language model."""

    scaling = Static


class BF16Master(Precision):
    """bf16 weights, activations and gradients, fp32 master weights, no loss scale, without autocast.

    The optimizer steps on the masters bucket by bucket, since it takes gradients of their type alone: only one bucket
    of gradients is in fp32 at a time, and a parameter needs 14 bytes between steps with AdamW.
    """

    input_dtype = torch.bfloat16
    masters = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.buckets: dict[Optimizer, list[Bucket]] = {}

    def cast(self, module: nn.Module) -> None:
        """Convert everything to bf16."""
        module.bfloat16()

    def backward(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Leave the gradients in the bf16 weights."""
        if optimizer not in self.buckets:
            self.buckets[optimizer] = in_buckets(*give_masters(optimizer, torch.bfloat16), BUCKET)
        for weight in self._weights(optimizer):
            weight.grad = None
        super().backward(loss, optimizer)

    def gradients(self, optimizer: Optimizer) -> list[Tensor]:
        """Those of the bf16 weights, and of parameters that are fp32 themselves."""
        own = [weight.grad for weight in self._weights(optimizer) if weight.grad is not None]
        return [*own, *super().gradients(optimizer)]

    def apply(self, optimizer: Optimizer, clip_norm: float | None) -> None:
        """A step on the fp32 masters, copied back to the bf16 weights."""
        clip([*self._weights(optimizer), *parameters_of(optimizer)], clip_norm)
        if super().gradients(optimizer):
            self.scale.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        for weights, masters in self.buckets[optimizer]:
            for weight, master in zip(weights, masters, strict=True):
                master.grad = None if weight.grad is None else local(weight.grad).float()
                weight.grad = None
            self.scale.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                torch._foreach_copy_([local(weight) for weight in weights], masters)

    def _weights(self, optimizer: Optimizer) -> list[Tensor]:
        return [weight for weights, _ in self.buckets[optimizer] for weight in weights]


Bucket = tuple[list[Tensor], list[Tensor]]
"""Weights and their masters."""
BUCKET = 1 << 26
"""Most elements of a bucket, but for one that is a single tensor: 256 MiB of gradients in fp32."""


def in_buckets(weights: list[Tensor], masters: list[Tensor], most: int) -> list[Bucket]:
    """Weights with their masters, in order, in groups of at most ``most`` elements or of one tensor."""
    buckets: list[Bucket] = []
    held = most
    for weight, master in zip(weights, masters, strict=True):
        size = local(weight).numel()
        if held + size > most:
            buckets.append(([], []))
            held = 0
        held += size
        buckets[-1][0].append(weight)
        buckets[-1][1].append(master)
    return buckets


def give_masters(optimizer: Optimizer, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """The weights of ``optimizer`` that are of type ``dtype``, and the fp32 masters that it steps on from now on.

    Of weights that ranks share out, the masters are this rank's parts: a step needs no other's. State that the
    optimizer made before its first step, as Adagrad does, becomes that of the masters.
    """
    weights: list[Tensor] = []
    masters: list[Tensor] = []
    for group in optimizer.param_groups:
        for place, weight in enumerate(group["params"]):
            if weight.dtype is dtype:
                master = nn.Parameter(local(weight.detach()).to(torch.float32, copy=True))
                if made := optimizer.state.pop(weight, None):
                    optimizer.state[master] = {name: local(value).float() for name, value in made.items()}
                group["params"][place] = master
                weights.append(weight)
                masters.append(master)
    return weights, masters


MODES: dict[str, type[Precision]] = {
    "fp32": Precision,
    "tf32": TF32,
    "torch_default": TorchDefault,
    "amp": AMP,
    "bf16": BF16,
    "half": Half,
    "half_master": HalfMaster,
    "half_master_static": HalfMasterStatic,
    "bf16_master": BF16Master,
}


def clip(parameters: list[Tensor], clip_norm: float | None) -> None:
    """Scale the gradients of ``parameters`` down to a total norm of ``clip_norm``."""
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, clip_norm)


class Probed(NamedTuple):
    """What the device computed in a mode, whatever the flags say."""

    dtype: str
    """Of a matrix product."""
    matmul_error: float
    """Relative (Frobenius norm, against fp64): about 1e-7 in fp32, 3e-4 in TF32 and fp16, 3e-3 in bf16."""
    convolution_error: float = 0.0
    """The same of a convolution; 0 unless the product was in fp32."""


def probe(precision: Precision) -> Probed:
    """Compute a 512 x 512 fp32 matrix product in this mode and, if that was in fp32, a convolution."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 512, 512, generator=generator, dtype=torch.float32)
    with precision.context():
        product = left.to(precision.device) @ right.to(precision.device)
    seen = Probed(str(product.dtype).removeprefix("torch."), _error(product, left.double() @ right.double()))
    stored_in_fp32 = precision.input_dtype is None  # else the weights say the mode, and nobody asks for more
    if not stored_in_fp32 or seen.dtype != "float32" or seen.matmul_error >= FP32_ERROR:
        return seen
    return seen._replace(convolution_error=_convolution_error(precision, generator))


def _convolution_error(precision: Precision, generator: torch.Generator) -> float:
    """That of a layer of ResNet-50, large enough for the kernels that its layers get."""
    channels, side = 128, 28
    pictures = torch.randn(1, channels, side, side, generator=generator)
    kernel = torch.randn(channels, channels, 3, 3, generator=generator)
    with precision.context():
        result = F.conv2d(pictures.to(precision.device), kernel.to(precision.device), padding=1)
    columns = F.unfold(pictures.double(), 3, padding=1)
    return _error(result, (kernel.double().flatten(1) @ columns).view(result.shape))


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.cpu().double() - exact).norm() / exact.norm())


def ran(dtypes: dict[str, int], probed: Probed, precision: Precision) -> str:
    """The mode that the weights' types and the probe show.

    With fp16 or bf16 weights, no product shows masters and loss scale: they are taken from ``precision``. A device
    without TF32 computes in fp32 when asked for ``tf32`` or ``torch_default``, and this says so.
    """
    if dtypes.get("float16"):
        return "half" if not precision.masters else "half_master" if precision.scale.skips else "half_master_static"
    if dtypes.get("bfloat16") and precision.masters:
        return "bf16_master"
    match probed.dtype:
        case "float16":
            return "amp"
        case "bfloat16":
            return "bf16"
        case _:
            products, convolutions = probed.matmul_error < FP32_ERROR, probed.convolution_error < TF32_ERROR
            return "tf32" if not products else "fp32" if convolutions else "torch_default"
