"""Keeps the host from running far ahead of the device."""

from __future__ import annotations

import time

import torch

MARKS = 2
INTERVAL_S = 0.01
"""Time between marks.

With one after every step of 0.4 ms, an H200's step under the meter took 15 to 20 % longer than bare; with one every
10 ms, 2.6 % (docs/measurements.md).
"""


class Ahead:
    """A device that works in step with the host: there is nothing to wait for."""

    @staticmethod
    def on(device: torch.device, interval_s: float) -> Ahead:
        """The instance for ``device``: the host is at most two marks ahead, a step or ``interval_s`` apart."""
        return CudaAhead(device, interval_s) if device.type == "cuda" else Ahead()

    def step(self) -> None:
        """Note that the host has finished a step."""

    def waited(self) -> None:
        """Note that the host has waited for what the device was given: for a while, no mark is needed."""

    def synchronize(self) -> None:
        """Return when the device has finished all its work."""


class CudaAhead(Ahead):
    """Marks the end of a step on the stream, and waits for the mark before the last."""

    def __init__(self, device: torch.device, interval_s: float) -> None:
        self._device = device
        self._interval_s = interval_s
        self._marks = [torch.cuda.Event() for _ in range(MARKS)]  # type: ignore[no-untyped-call]
        self._next = 0
        self._marked_s = 0.0

    def step(self) -> None:
        """If a mark is due: wait for the device to pass the one before the last, and set it again."""
        now = time.monotonic()
        if now - self._marked_s < self._interval_s:
            return
        self._marked_s = now
        mark = self._marks[self._next]
        mark.synchronize()  # returns at once if the mark was never set
        mark.record()
        self._next = (self._next + 1) % MARKS

    def waited(self) -> None:
        """Have the next mark be due an interval from now."""
        self._marked_s = time.monotonic()

    def synchronize(self) -> None:
        """Wait for the whole device."""
        torch.cuda.synchronize(self._device)
