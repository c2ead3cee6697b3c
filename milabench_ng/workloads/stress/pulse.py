"""On and off at a common rate: what power supplies and voltage regulators have to follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import torch
from msgspec import Meta

Hertz = Annotated[float, Meta(ge=0, le=20)]
"""How often a second; 0 for no pulses."""


class Pulse:
    """Works in the first half of each period of the node's monotonic clock, which all tenants share."""

    def __init__(self, hertz: float, clock: Callable[[], float]) -> None:
        self._hertz = hertz
        self._clock = clock

    def off_s(self) -> float:
        """How long it is until the next period; 0 in the half of it that is for work."""
        phase = self._clock() * self._hertz % 1.0
        return (1 - phase) / self._hertz if phase >= 0.5 else 0.0


def waiting(hertz: float, device: torch.device) -> Callable[[], None]:
    """What is called before each operation, and waits until it is time for it and the one before has ended."""
    if not hertz:
        return lambda: None
    pulse = Pulse(hertz, time.monotonic)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        time.sleep(pulse.off_s())

    return wait
