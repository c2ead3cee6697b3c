"""For scripts that run work by themselves: a channel without an orchestrator, and runs that take turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Event, Full, Slice
from milabench_ng.records.window import SliceRow, Window, WindowRule, averaging_window


class UntilFull:
    """Starts at once, ends when the window is full, keeps the slices."""

    def __init__(self, rule: WindowRule) -> None:
        self.rule = rule
        self.slices: list[SliceRow] = []
        self.full: Full | None = None

    def send(self, event: Event) -> None:
        """Keep slices, and the time when the window was full."""
        if isinstance(event, Slice):
            self.slices.append(SliceRow.of(event))
        elif isinstance(event, Full):
            self.full = event

    def wait_for_start(self) -> None:
        """Start at once."""

    def poll(self, steps: int) -> None:
        """No commands come."""

    def ended(self, steps: int) -> bool:  # noqa: ARG002  # the protocol's signature
        """Whether the window is full."""
        return self.full is not None

    def window(self) -> Window:
        """The window of a launch that is stopped when it is full."""
        found = averaging_window([self.slices], self.full.time_s, self.rule) if self.full else None
        if found is None:
            raise InputError("the workload ended before its window was full")
        return found


class CountedSteps(UntilFull):
    """Stops after a number of steps instead."""

    def __init__(self, steps: int) -> None:
        super().__init__(WindowRule())
        self.steps = steps

    def ended(self, steps: int) -> bool:
        """Whether they are done."""
        return steps >= self.steps


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_turn(first: Callable[[], float], second: Callable[[], float], pairs: int) -> tuple[list[float], list[float]]:
    """What both make in so many pairs of runs, of which every other begins with the second."""
    found: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        for run, into in list(zip((first, second), found, strict=True))[:: 1 if pair % 2 else -1]:
            into.append(run())
    return found


def ratio_text(ours: Sequence[float], others: Sequence[float], each: str) -> str:
    """The median and the quartiles of the ratios of runs that took turns; ``each``: what one of them did."""
    low, middle, high = statistics.quantiles((one / other for one, other in zip(ours, others, strict=True)), n=4)
    return f"median ratio {middle:.4f} (quartiles {low:.4f} to {high:.4f}, {len(ours)} pairs of {each})"
