"""What a loss is multiplied by before its gradients are taken in fp16, and taken out of them again.

Siblings of one shape: none, a constant, and torch's dynamic scale, which skips steps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

STATIC_SCALE = 128.0
"""That of 2020's language model."""

FIRST_SCALE = 2.0**10
"""Of the dynamic scale. With torch's 2**16 the gradients of an untrained ResNet-101 (up to 38 in its first convolution)
overflow, and reference traces would not know those of the first step."""


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All that ``optimizer`` steps on."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Unscaled:
    """No scale; base of the others."""

    skips = False
    """Whether a step with infinite gradients is skipped, so that a loss may be infinite for some steps."""

    def __init__(self, device: torch.device) -> None:
        """``device``: where the gradients will be."""

    def backward(self, loss: Tensor) -> None:
        """Leave the scaled gradients of ``loss`` in the weights."""
        loss.backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Take the scale out of the gradients that ``optimizer`` steps with."""

    def step(self, optimizer: Optimizer) -> None:
        """One optimizer step."""
        optimizer.step()

    def skipped(self) -> int:
        """Steps that were skipped so far; called while the device is idle."""
        return 0


class Static(Unscaled):
    """A constant, so that the host never waits for the device.

    Nothing looks for infinite gradients: they make the weights and the next loss infinite, and the launch fails.
    """

    def backward(self, loss: Tensor) -> None:
        """In fp32, in which the scaled loss has room."""
        (loss.float() * STATIC_SCALE).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Exact: the scale is a power of two."""
        held = [parameter.grad for parameter in parameters_of(optimizer) if parameter.grad is not None]
        torch._foreach_mul_(held, 1 / STATIC_SCALE)


class Dynamic(Unscaled):
    """Halved, and the step skipped, where a gradient is infinite: the host waits for the device in every step."""

    skips = True

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type, init_scale=FIRST_SCALE)
        self._heard: set[Optimizer] = set()
        self._asked = 0
        self._taken: int | Tensor = 0

    def backward(self, loss: Tensor) -> None:
        """Of the scaled loss."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """And look for infinite ones."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """One step, or none."""
        if optimizer not in self._heard:
            self._heard.add(optimizer)
            optimizer.register_step_post_hook(self._count)
        self._asked += 1
        self.scaler.step(optimizer)
        self.scaler.update()

    def skipped(self) -> int:
        """Steps that were asked for and not taken."""
        return self._asked - int(self._taken)

    def _count(self, optimizer: Optimizer, _arguments: object, _options: object) -> None:
        """The scaler, which knows on the host, calls an optimizer only where it shall step.

        A fused one it calls always, with what it found; the sum stays on the device until it is read.
        """
        found = getattr(optimizer, "found_inf", None)
        self._taken = self._taken + 1 if found is None else self._taken + (1 - found)
