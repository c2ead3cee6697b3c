"""A launch in flight: what its worker has reported so far, and the two pipes to it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

import msgspec

from milabench_ng.fence.interface import Group, IsolationMismatch
from milabench_ng.fence.kernel.processes import Family, Process, identify, is_there, working_name
from milabench_ng.fence.killing import NotOursError, send
from milabench_ng.model import events
from milabench_ng.model.bounds import LARGEST
from milabench_ng.model.events import (
    AnyEvent,
    Checked,
    Command,
    Digest,
    Done,
    Entered,
    Failed,
    Full,
    GradientNorm,
    Lines,
    Loss,
    Mismatch,
    Peak,
    Phase,
    Ready,
    Skips,
    Slice,
)
from milabench_ng.model.files import LARGE
from milabench_ng.model.plan import Launch
from milabench_ng.model.units import MIB
from milabench_ng.records.verified import MOST_TOLD, Mismatched
from milabench_ng.records.window import SliceRow
from milabench_ng.run.execution.logs import Log
from milabench_ng.run.execution.starting import StartedWorker, Starter
from milabench_ng.worker.requests import Task

_CHUNK_BYTES = 1 << 16
"""A read that gives less has emptied the pipe."""
PIPE_BYTES = 1 << 20
"""The largest pipe that a worker can make of its own (pipe(7), ``pipe-max-size``)."""
RECENT_S = 5.0
"""Long enough for a steady figure, short enough to leave the start behind soon."""
LONG_S = 2.0
"""A slice that takes so much longer than those before it is waited for in vain so far: its time counts."""


@dataclasses.dataclass
class RankLog:
    """What one rank has reported."""

    entered: Entered | None = None
    """What it says, first."""
    process: Process | None = None
    """What it is, proved to be of its launch."""
    ready: Ready | None = None
    done: Done | None = None
    full_s: float | None = None
    peak_bytes: int | None = None
    """Of a trial of a batch size."""
    slices: list[SliceRow] = dataclasses.field(default_factory=list)
    losses: dict[str, float | None] = dataclasses.field(default_factory=dict)
    gradient_norms: dict[str, float | None] = dataclasses.field(default_factory=dict)
    skips: list[Skips] = dataclasses.field(default_factory=list)
    """One entry after each slice, and one at the end."""
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    checked: Checked | None = None
    """What it had verified of its work when it last told."""
    mismatches: list[Mismatched] = dataclasses.field(default_factory=list)
    """The first of them."""
    phases: dict[str, float] = dataclasses.field(default_factory=dict)


class Tenant:
    """A launch, from the request to the exit status."""

    def __init__(self, launch: Launch, task: Task, groups: dict[str, Group], log: Log) -> None:
        """``groups``: the fences of the launch, by slot."""
        loop = asyncio.get_running_loop()
        self.launch = launch
        self.task = task
        self.groups = groups
        self.log = log
        self.ranks = [RankLog() for _ in task.seats]
        self.failures: list[Failed] = []
        self.ready: asyncio.Future[None] = loop.create_future()
        self.full: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[int | None] = loop.create_future()
        """The worker's exit status; None if it could not be killed."""
        self.ended_s: float | None = None
        self.ready_s: float | None = None
        self.heard_s = time.monotonic()
        """Time of its last slice."""
        self._lines = Lines(AnyEvent)
        self._commands = self._events = -1
        """Our ends of its pipes; -1 before it is started."""
        self._heard_bytes = self._items = 0
        self.harness_error = ""
        """What kept it from working, if that was mnb itself."""
        self.failed_s: float | None = None
        """Time when it reported its failure, or ended."""
        self.intruder = ""
        """What is in its groups and no process of the launch, if that was seen."""
        self.worker: StartedWorker | None = None
        """None before it is started."""
        self.broken_protocol = ""
        self.longest_slice_s = 0.0
        """The longest slice of all ranks so far; 0 before the first."""

    async def start(self, starter: Starter, on_entered: Callable[[Tenant, Entered], None]) -> None:
        """Start the worker; ``on_entered`` is called for each of its processes that has entered the fence."""
        self._on_entered = on_entered
        commands, self._commands = os.pipe()
        self._events, events_end = os.pipe()
        os.set_blocking(self._events, False)
        try:
            started = await starter.start(self.task, commands, events_end, self.log.descriptor)
        finally:
            for end in (commands, events_end):
                os.close(end)
        self.worker = started
        asyncio.get_running_loop().add_reader(self._events, self._receive)
        started.ended.add_done_callback(lambda _: self._end(started))

    @property
    def pid(self) -> int | None:
        """The worker's."""
        return self.worker.process.pid if self.worker else None

    @property
    def alive(self) -> bool:
        """Whether its worker is still running."""
        return not self.ended.done()

    def tell(self, command: Command) -> None:
        """Send a command to the worker; one that has just died ignores it."""
        if self.alive:
            try:
                os.write(self._commands, events.encode(command))
            except BrokenPipeError:
                return

    def kill(self) -> None:
        """SIGKILL to every process of the launch, except for one that `mnb` never signals: it is an `intruder`."""
        for group in self.groups.values():
            try:
                group.kill()
            except NotOursError as error:
                self.intruder = str(error)
        with contextlib.suppress(NotOursError):  # it has ended, and its pid is another's
            if self.worker:
                send(signal.SIGKILL, [self.worker.process.pid], Family(self.worker.process))

    def proved(self, pids: Iterable[int]) -> set[int]:
        """Those of ``pids`` that are its processes at this moment: in its groups, or below its worker."""
        wanted = set(pids)
        found = {pid for group in self.groups.values() for pid in group.pids()} & wanted
        return found | (self.worker.family.proved(wanted) if self.worker else set())

    def pids(self) -> tuple[int, ...]:
        """All its processes, according to the fence; only the worker before it has entered."""
        found = {pid for group in self.groups.values() for pid in group.pids()}
        return tuple(sorted(found or ({self.pid} if self.pid else set())))

    def entering(self, entered: Entered) -> Process | None:
        """The process that a rank says it is, if it is of this launch; None if there is none, or the launch has ended.

        Raises IsolationMismatch for any other process, and OSError if it cannot be read.
        """
        assert self.worker
        pid, before = entered.pid, self.ranks[entered.rank]
        found, process = self.worker.family.proved([pid]), identify(pid)
        said = f"isolation: rank {entered.rank} says that it is process"
        if before.entered and before.process is None:
            raise IsolationMismatch(f"{said} {before.entered.pid}, and there is none.")
        for number, rank in enumerate(self.ranks):
            if number != entered.rank and rank.process and rank.process == process:
                raise IsolationMismatch(f"{said} {pid}, which is rank {number}.")
        if found or not is_there(self.worker.family.root):
            return process if found else None
        if process or before.entered:
            raise IsolationMismatch(f"{said} {pid}, which is not of this launch.")
        return None

    def abandon(self) -> None:
        """Stop waiting for a worker: it hangs in the kernel, or there is none."""
        if self.alive:
            self._close()
            self.ended.set_result(None)

    def rate(self, now_s: float) -> float:
        """Items per second at this moment, or at the end, the mean of the ranks that have worked; for display."""
        worked = [rank.slices for rank in self.ranks if rank.slices]
        rates = [recent_rate(slices, now_s if self.alive else slices[-1].end_s) for slices in worked]
        return sum(rates) / len(rates) if rates else 0.0

    def drain(self) -> None:
        """Hear all that is in the pipe, as far as it can be full."""
        for _ in range(PIPE_BYTES // _CHUNK_BYTES):
            if self.alive and not self._receive():
                return

    def _receive(self) -> bool:
        """Hear one chunk, so that a worker that floods its pipe keeps nobody waiting; whether there may be more."""
        try:
            chunk = os.read(self._events, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._heard_bytes += len(chunk)
        try:
            for event in self._lines.feed(chunk):
                self._note(event)
        except msgspec.DecodeError as error:
            self.broken_protocol = f"the worker wrote something that is no event: {error}"
        if self._heard_bytes > LARGE:
            self.broken_protocol = f"the worker wrote more than {LARGE // MIB} MiB of events"
        if not chunk and self._is_deaf():
            self.broken_protocol = "the worker closed its event pipe (descriptor 4) but kept running"
        if self.broken_protocol:
            self.kill()
        if not chunk or self.broken_protocol:
            asyncio.get_running_loop().remove_reader(self._events)
        return len(chunk) == _CHUNK_BYTES and not self.broken_protocol

    def _is_deaf(self) -> bool:
        """Whether a process still runs after its event pipe was closed."""
        processes = [rank.process for rank in self.ranks if rank.process]
        return any(working_name(str(one.pid)) and is_there(one) for one in processes)

    def _note(self, event: AnyEvent) -> None:
        if event.rank >= len(self.ranks):
            raise msgspec.ValidationError(f"rank {event.rank} of {len(self.ranks)}")
        rank = self.ranks[event.rank]
        match event:
            case Entered():
                self._on_entered(self, event)
                if rank.entered:
                    raise msgspec.ValidationError(f"rank {event.rank} has entered already")
                rank.entered = event
            case Phase():
                rank.phases[event.name] = rank.phases.get(event.name, 0.0) + event.seconds
            case Ready():
                rank.ready = event
                if all(other.ready for other in self.ranks) and not self.ready.done():
                    self.ready_s = time.monotonic()
                    self.ready.set_result(None)
            case Slice():
                self.heard_s = time.monotonic()
                rank.slices.append(SliceRow.of(event))
                self._items += event.count
                if self._items > LARGEST:
                    raise msgspec.ValidationError(f"{self._items} items in all, more than {LARGEST:g}")
                self.longest_slice_s = max(self.longest_slice_s, event.length_s)
            case Loss():
                rank.losses[str(event.step)] = event.value
            case GradientNorm():
                rank.gradient_norms[str(event.step)] = event.value
            case Skips():
                rank.skips.append(event)
            case Digest():
                rank.digests[str(event.step)] = event.sha256
            case Checked():
                rank.checked = event
            case Mismatch():
                if len(rank.mismatches) < MOST_TOLD:
                    rank.mismatches.append(Mismatched(event.what, event.check, event.time_s))
            case Full():
                rank.full_s = event.time_s
                if all(other.full_s for other in self.ranks) and not self.full.done():
                    self.full.set_result(None)
            case Done():
                rank.done = event
            case Peak():
                rank.peak_bytes = event.bytes
            case Failed():
                self.failures.append(event)
                self.failed_s = self.failed_s or time.monotonic()

    def _end(self, started: StartedWorker) -> None:
        error = started.ended.exception()
        if self.alive:  # it was not abandoned
            self.drain()
            self._close()
            self.harness_error = str(error or "")
            self.ended.set_result(None if error else started.ended.result())

    def _close(self) -> None:
        if self._events >= 0:
            asyncio.get_running_loop().remove_reader(self._events)
            os.close(self._events)
            os.close(self._commands)
        self.ended_s = time.monotonic()
        self.failed_s = self.failed_s or self.ended_s


def recent_rate(slices: Sequence[SliceRow], now_s: float) -> float:
    """A rank's items per second, for display: over the slices begun in the last five seconds, or the last one.

    What has passed since counts too if it is long, so that the rate of a rank that waits falls. ``now_s``: on the clock
    of the slices.
    """
    if not slices:
        return 0.0
    rows = list(takewhile(lambda row: row.start_s >= now_s - RECENT_S, reversed(slices))) or slices[-1:]
    seconds = math.fsum(row.length_s for row in rows)
    open_s = now_s - slices[-1].end_s
    late_s = open_s if open_s > seconds / len(rows) + LONG_S else 0.0
    return sum(row.count for row in rows) / (seconds + late_s)
