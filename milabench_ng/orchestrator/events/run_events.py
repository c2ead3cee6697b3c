"""What the orchestrator tells while a run goes on. (What workers tell the orchestrator is `milabench_ng.events`.)

Each event is one frozen type with the tag ``type``. Durations and lengths are seconds; moments stand in the `Stamped`
around an event.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from milabench_ng.plan import Role
from milabench_ng.records.record import Cause
from milabench_ng.requests import DataEstimate, DataProgress, Prepared

RUN_EVENTS_SCHEMA = 1

State = Literal["starting", "ready", "working", "full", "ended"]
"""Of a launch. ``full``: its averaging window is, and it works on until all are. One that fails leaves some out."""


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events."""


class Note(RunEvent, frozen=True, kw_only=True):
    """Something that the user should know."""

    text: str


class Stage(RunEvent, frozen=True, kw_only=True):
    """Something that may take longer than two seconds begins."""

    text: str


class Preparing(RunEvent, frozen=True, kw_only=True):
    """How the data sets are made ready."""

    answer: DataEstimate | DataProgress | Prepared


class RunBegins(RunEvent, frozen=True, kw_only=True):
    """A session is in the ledger; its batches follow."""

    schema: int = RUN_EVENTS_SCHEMA
    version: str
    run_id: str
    session: int
    suite: str
    batches: int
    launches: int
    """That are measured."""
    least_s: float
    """What the whole plan takes at least."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of a batch, and the slots that it has."""

    label: str
    job_id: str
    slots: tuple[str, ...]
    role: Role


class BatchBegins(RunEvent, frozen=True, kw_only=True):
    """A batch is about to start; ``label`` and ``run`` are those of its first launch."""

    number: int
    of: int
    """Batches in the plan."""
    label: str
    run: int
    launches: tuple[Placed, ...]
    left_s: float
    """An estimate of the time until the last batch is over, this one included, without retries."""


class LaunchEvent(RunEvent, frozen=True, kw_only=True):
    """Base of what is told of one launch; ``batch`` and ``job_id`` name it."""

    batch: int
    job_id: str


class LaunchState(LaunchEvent, frozen=True, kw_only=True):
    """A launch has got so far."""

    label: str
    state: State
    pid: int | None
    """Its worker; of a launch over several devices the parent of the ranks."""
    rank_pids: tuple[int, ...] = ()
    """The processes inside the fence that have said so, by rank."""


class Slices(LaunchEvent, frozen=True, kw_only=True):
    """What a launch has done since the last such event. Sums are over the ranks."""

    count: int
    """Items."""
    steps: int
    length_s: float
    """``count / length_s`` is the launch's rate in items/s, the mean of its ranks."""
    wait_s: float
    """Of ``length_s``: for data."""
    slices: tuple[int, ...]
    """By rank, since the start."""


class BatchProgress(RunEvent, frozen=True, kw_only=True):
    """Where a batch is, once a second, whatever its launches say."""

    number: int
    launches: int
    ready: int
    working_s: float | None
    """Since the common start; None before it."""
    items_per_s: tuple[float, ...]
    """Of each launch, over the last two seconds; the mean of its ranks."""


class LaunchEnds(LaunchEvent, frozen=True, kw_only=True):
    """A launch has its record: a rate, or a cause."""

    label: str
    role: Role
    attempt: int
    file: str
    """The record's name in the result folder."""
    unit: str
    perf: float | None
    """Items of ``unit`` per second in the averaging window, the mean of the ranks."""
    cause: Cause | None
    """Why it failed; None where it did not."""
    detail: str


class RunEnds(RunEvent, frozen=True, kw_only=True):
    """No batch follows. A session without it was killed, or could not go on."""

    missing: int
    """Launches without a valid record."""
    failed: int
    """Attempts that failed or left nothing, and launches that were never tried."""
    interrupted: bool


AnyRunEvent = (
    Note | Stage | Preparing | RunBegins | BatchBegins | LaunchState | Slices | BatchProgress | LaunchEnds | RunEnds
)


class Stamped(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it was published."""

    number: int
    """0, 1, 2... over all events of a session; a sink that begins later has not seen the first."""
    utc: str
    time_s: float
    """On CLOCK_MONOTONIC, as the slices of the records."""
    event: AnyRunEvent
