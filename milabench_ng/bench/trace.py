"""What a launch computed: loss and gradient norm of a few steps to its end, and a digest of the parameters.

They are computed on the device after their step and read when the next slice is closed, so they cost no extra
synchronisation.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from milabench_ng.bench.channel import Channel
from milabench_ng.bench.loss_scale import Unscaled
from milabench_ng.bench.moving import local, tensors
from milabench_ng.model.events import Digest, GradientNorm, Loss, Skips
from milabench_ng.records.record import DIGEST_STEP, PROBED_STEPS

PIECE = 1 << 24
"""Elements that are summed at once: torch makes int64 of them all first, which must not take gigabytes."""


class TraceRecorder:
    """Watches the modules and losses of one process."""

    def __init__(
        self, channel: Channel, rank: int, scale: Unscaled | None = None, late_steps: Collection[int] = ()
    ) -> None:
        """``scale``: the loss scale, whose skipped steps are counted. ``late_steps``: more steps that are told."""
        self._channel = channel
        self._rank = rank
        self._scale = scale
        self._probed = frozenset((*PROBED_STEPS, *late_steps))
        self._modules: list[nn.Module] = []
        self._steps = 0
        self._last: Tensor | None = None
        self._losses: dict[int, Tensor] = {}
        self._norms: dict[int, Tensor] = {}
        self._digests: dict[int, Tensor] = {}
        """What a digest is made of, by step."""
        self._finite = True

    def watch(self, module: nn.Module) -> None:
        """Include the parameters of ``module`` in the digest."""
        self._modules.append(module)

    def gradients(self, gradients: list[Tensor]) -> None:
        """Note the next step's ``gradients``, unscaled and not yet clipped."""
        if self._steps + 1 in self._probed:
            self._norms[self._steps + 1] = gradient_norm(gradients)

    def step(self, loss: Tensor) -> None:
        """Note that an optimizer step is done."""
        self._steps += 1
        self._last = loss
        if self._steps in self._probed:
            self._losses[self._steps] = loss.detach().clone()
        if self._steps == DIGEST_STEP:
            self._keep(parameter_sums(self._modules))

    def outputs(self, outputs: Any) -> None:
        """Note that a batch of inference is done, whose ``outputs`` are on the host.

        The mean magnitude of all floating-point outputs takes the place of a loss; the digest is that of their bits.
        """
        self._steps += 1
        if self._steps in self._probed:
            floating = [tensor.flatten() for tensor in tensors(outputs) if tensor.is_floating_point()]
            if floating:
                self._losses[self._steps] = torch.cat(floating).abs().mean()
        if self._steps == DIGEST_STEP:
            self._keep(bit_sums(tensors(outputs)))

    def result(self, value: Tensor) -> None:
        """Note that a step is done whose result is ``value``, in words of 8 bytes: its digest stands for it."""
        self._steps += 1
        if self._steps in self._probed:
            self._keep(value.detach().clone())

    def report(self) -> None:
        """Report what was recorded since the last call; the device must be idle."""
        for step, loss in self._losses.items():
            self._say(step, float(loss))
        self._losses.clear()
        for step, norm in self._norms.items():
            self._channel.send(GradientNorm(rank=self._rank, step=step, value=finite(float(norm))))
        self._norms.clear()
        for step, words in self._digests.items():
            content = words.cpu().numpy().tobytes()
            self._channel.send(Digest(rank=self._rank, step=step, sha256=hashlib.sha256(content).hexdigest()))
        self._digests.clear()
        if self._last is not None:
            self._look(float(self._last.detach()))
        if self._scale is not None and self._scale.skips:
            self._channel.send(Skips(rank=self._rank, steps=self._steps, skipped=self._scale.skipped()))

    def _keep(self, words: Tensor | None) -> None:
        if words is not None:
            self._digests[self._steps] = words

    def _look(self, value: float) -> None:
        """Report a loss that is not finite, and the first that is finite again."""
        sound = math.isfinite(value)
        if not (sound and self._finite):
            self._say(self._steps, value)
        self._finite = sound

    def dtypes(self) -> dict[str, int]:
        """Parameters by type."""
        counts: Counter[str] = Counter()
        for module in self._modules:
            for parameter in module.parameters():
                several = 2 if parameter.dtype is torch.float4_e2m1fn_x2 else 1
                counts[str(parameter.dtype).removeprefix("torch.")] += several * parameter.numel()
        return dict(counts)

    def _say(self, step: int, loss: float) -> None:
        self._channel.send(Loss(rank=self._rank, step=step, value=finite(loss)))


def finite(value: float) -> float | None:
    """``value``, or None if it is not finite."""
    return value if math.isfinite(value) else None


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """The 2-norm of all ``gradients``, on their device, in fp32, since squares would overflow fp16.

    Gradients that ranks share out (DTensor) count whole; all ranks must ask at the same time.
    """
    norms = [torch.linalg.vector_norm(local(gradient), dtype=torch.float32) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    if any(gradient is not local(gradient) for gradient in gradients):
        square = norm.square()
        torch.distributed.all_reduce(square)
        norm = square.sqrt()
    return norm


def parameter_sums(modules: list[nn.Module]) -> Tensor | None:
    """One int64 per parameter tensor: the sum of its bit patterns, which any flipped bit changes."""
    return bit_sums([local(parameter.detach()) for module in modules for parameter in module.parameters()])


def bit_sums(values: list[Tensor]) -> Tensor | None:
    """One int64 per tensor: the sum of its bit patterns; None without tensors."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    words = (tensor.contiguous().view(integers[tensor.element_size()]).flatten() for tensor in values)
    sums = [torch.stack([part.sum(dtype=torch.int64) for part in torch.split(each, PIECE)]).sum() for each in words]
    return torch.stack(sums) if sums else None
