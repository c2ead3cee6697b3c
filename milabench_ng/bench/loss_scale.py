"""Loss scales: factors of the loss, removed again from its gradients, that keep these in the range of fp16.

There are three with one interface: none, a constant, and torch's dynamic scale, which skips steps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

STATIC_SCALE = 128.0
"""The loss scale of 2020's language model."""

FIRST_SCALE = 2.0**10
"""The first value of the dynamic scale.

With torch's 2**16 the gradients of an untrained ResNet-101 (up to 38 in its first convolution) overflow, and reference
traces would lack those of the first step.
"""


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
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
        """Divide the gradients that ``optimizer`` steps with by the scale."""

    def step(self, optimizer: Optimizer) -> None:
        """One optimizer step."""
        optimizer.step()

    def skipped(self) -> int:
        """Steps skipped so far; called while the device is idle."""
        return 0


class Static(Unscaled):
    """A constant, so that the host never waits for the device.

    Infinite gradients are not detected: they make the weights and the next loss infinite, and the launch fails.
    """

    def backward(self, loss: Tensor) -> None:
        """Scale in fp32, in which the scaled loss does not overflow."""
        (loss.float() * STATIC_SCALE).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide by the scale; exact, since it is a power of two."""
        held = [parameter.grad for parameter in parameters_of(optimizer) if parameter.grad is not None]
        torch._foreach_mul_(held, 1 / STATIC_SCALE)


class Dynamic(Unscaled):
    """If a gradient is infinite, halves itself and skips the step: the host waits for the device in every step."""

    skips = True

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type, init_scale=FIRST_SCALE)
        self._heard: set[Optimizer] = set()
        self._asked = 0
        self._taken: int | Tensor = 0

    def backward(self, loss: Tensor) -> None:
        """Leave the gradients of the scaled loss."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide by the scale, and look for infinite gradients."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Step, unless a gradient is infinite."""
        if optimizer not in self._heard:
            self._heard.add(optimizer)
            optimizer.register_step_post_hook(self._count)
        self._asked += 1
        self.scaler.step(optimizer)
        self.scaler.update()

    def skipped(self) -> int:
        """Steps that were requested but not taken."""
        return self._asked - int(self._taken)

    def _count(self, optimizer: Optimizer, _arguments: object, _options: object) -> None:
        """Count a step that is taken: the scaler knows on the host, and calls an optimizer only if it shall step.

        It always calls a fused one, with what it found; the sum stays on the device until it is read.
        """
        found = getattr(optimizer, "found_inf", None)
        self._taken = self._taken + 1 if found is None else self._taken + (1 - found)
