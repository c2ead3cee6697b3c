"""A channel without an orchestrator, for scripts that run a workload by themselves."""

from __future__ import annotations

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
