"""The two ends of the protocol that a worker holds, and how the ranks of one launch agree on their last step."""

from __future__ import annotations

import mmap
import os
import select
import time
from typing import Protocol

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import AnyCommand, Event, Full, Lines, Start, Stop, encode

HEADROOM = 8
"""Steps between a rank's decision to stop and the last step.

A rank is at most two steps ahead of its device (`ahead`), and no device is ahead of another by more than the collective
of one step, so all ranks see the decision in time.
"""


class Channel(Protocol):
    """How a meter talks to the orchestrator."""

    def send(self, event: Event) -> None:
        """Say something to the orchestrator."""

    def wait_for_start(self) -> None:
        """Return when all tenants of the batch start."""

    def poll(self, steps: int) -> None:
        """Look for a ``Stop``; called after each slice. ``steps``: steps done so far."""

    def ended(self, steps: int) -> bool:
        """Whether ``steps`` was the last one; called after each step."""


class PipeChannel:
    """A single worker: one pipe up, one pipe down."""

    def __init__(self, up: int, down: int) -> None:
        self.up = up
        self.down = down
        self._lines = Lines(AnyCommand)
        self._stopped = False

    def send(self, event: Event) -> None:
        """One line, one write: lines of several ranks never mix as long as they are under PIPE_BUF."""
        os.write(self.up, encode(event))

    def wait_for_start(self) -> None:
        """Block until ``Start``, or until a ``Stop`` that came without one."""
        started = False
        while not started and not self._stopped:
            commands = self._read()
            started = any(isinstance(command, Start) for command in commands)
            self._stopped = any(isinstance(command, Stop) for command in commands)

    def poll(self, steps: int) -> None:  # noqa: ARG002  # the protocol's signature
        """Note a ``Stop`` that has arrived."""
        while not self._stopped and select.select([self.down], [], [], 0)[0]:
            self._stopped = any(isinstance(command, Stop) for command in self._read())

    def ended(self, steps: int) -> bool:  # noqa: ARG002
        """Whether ``Stop`` has been seen."""
        return self._stopped

    def _read(self) -> list[AnyCommand]:
        chunk = os.read(self.down, 65536)
        if not chunk:
            raise InputError("the orchestrator closed its pipe: it has ended")
        return list(self._lines.feed(chunk))


def shared_numbers() -> memoryview:
    """Some 500 integers of 64 bits, all 0, that a process shares with its forks."""
    return memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")


class SharedStop:
    """The last step of a launch, in memory that all its ranks share (inherited by fork)."""

    def __init__(self) -> None:
        self._cell = shared_numbers()

    @property
    def step(self) -> int:
        """The last step; 0 while undecided."""
        return self._cell[0]

    @step.setter
    def step(self, step: int) -> None:
        self._cell[0] = step


class TrialChannel:
    """A channel for a trial of a batch size: it is full after some steps, and heeds a stop after each."""

    def __init__(self, channel: Channel, rank: int, steps: int) -> None:
        self._channel = channel
        self._rank = rank
        self._steps = steps
        self._full = False

    def send(self, event: Event) -> None:
        """Say something to the orchestrator."""
        self._channel.send(event)

    def wait_for_start(self) -> None:
        """Start with the others."""
        self._channel.wait_for_start()

    def poll(self, steps: int) -> None:
        """Look for a ``Stop``."""
        self._channel.poll(steps)

    def ended(self, steps: int) -> bool:
        """Whether ``steps`` was the last one. Says ``full`` when the steps of the trial are done."""
        if steps >= self._steps:
            if not self._full:
                self._full = True
                self.send(Full(rank=self._rank, time_s=time.monotonic(), count=steps))
            self.poll(steps)
        return self._channel.ended(steps)


class RankChannel:
    """One rank of several: rank 0 listens to the orchestrator, the others to rank 0."""

    def __init__(self, pipe: PipeChannel, rank: int, shared: SharedStop) -> None:
        self._pipe = pipe
        self._rank = rank
        self._shared = shared

    def send(self, event: Event) -> None:
        """Say something to the orchestrator."""
        self._pipe.send(event)

    def wait_for_start(self) -> None:
        """Rank 0 waits for ``Start``, the others for rank 0."""
        import torch.distributed as dist

        dist.barrier()
        if self._rank == 0:
            self._pipe.wait_for_start()
        dist.barrier()

    def poll(self, steps: int) -> None:
        """Rank 0 turns a ``Stop`` into a last step."""
        if self._rank == 0 and self._shared.step == 0:
            self._pipe.poll(steps)
            if self._pipe.ended(steps):
                self._shared.step = steps + HEADROOM

    def ended(self, steps: int) -> bool:
        """Whether the last step is done."""
        return 0 < self._shared.step <= steps
