"""Events that the orchestrator publishes during a run. (`milabench_ng.model.events` has those from workers.)

Each event is one frozen type with the tag ``type``. Durations and lengths are in seconds; the `Stamped` around an event
holds its time.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from milabench_ng.model.events import Cause
from milabench_ng.model.plan import Role
from milabench_ng.worker.requests import DataEstimate, DataProgress, Prepared

RUN_EVENTS_SCHEMA = 1

State = Literal["starting", "ready", "working", "full", "ended"]
"""State of a launch. ``full``: its averaging window is, and it works until all are. A failed one skips some states."""


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events."""


class Note(RunEvent, frozen=True, kw_only=True):
    """Something that the user should know."""

    text: str


class Stage(RunEvent, frozen=True, kw_only=True):
    """The start of something that may take longer than two seconds."""

    text: str


class Preparing(RunEvent, frozen=True, kw_only=True):
    """Progress in preparing the datasets."""

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
    """Least duration of the whole plan."""
    settle_s: float = 0.0
    """Time from the common start of a batch to its averaging window."""
    window_s: float = 0.0
    """Length of the averaging window."""


class LaunchSlots(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of a batch, and its slots."""

    label: str
    job_id: str
    slots: tuple[str, ...]
    role: Role
    unit: str = "items"
    """What its rate counts."""
    devices: tuple[str, ...] = ()
    """Of the slots: ``"GPU 0"``, ``"CPU 1"``."""


class BatchBegins(RunEvent, frozen=True, kw_only=True):
    """A batch is about to start; ``label`` and ``run`` are those of its first launch."""

    number: int
    of: int
    """Number of batches in the plan."""
    label: str
    run: int
    launches: tuple[LaunchSlots, ...]
    left_s: float
    """Estimated time until the last batch of the last session ends, including this one, without retries."""
    takes_s: float = 0.0
    """Estimated time of this batch; 0 in events that do not tell."""


class LaunchEvent(RunEvent, frozen=True, kw_only=True):
    """Base of the events about one launch; ``batch`` and ``job_id`` name it."""

    batch: int
    job_id: str


class LaunchState(LaunchEvent, frozen=True, kw_only=True):
    """A launch has reached a state."""

    label: str
    state: State
    pid: int | None
    """Its worker; for a launch over several devices, the parent of the ranks."""
    rank_pids: tuple[int, ...] = ()
    """Processes that have reported being inside the fence, by rank."""


class Slices(LaunchEvent, frozen=True, kw_only=True):
    """The work of a launch since its last such event, summed over the ranks."""

    count: int
    """Items."""
    steps: int
    length_s: float
    """``count / length_s`` is the launch's rate in items/s, the mean of its ranks."""
    wait_s: float
    """The part of ``length_s`` spent waiting for data."""
    slices: tuple[int, ...]
    """Number of slices by rank, since the start."""


class Gauges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sample of a slot's device; None for what it does not tell."""

    utilization_pct: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    memory_used_mib: float | None = None


class BatchProgress(RunEvent, frozen=True, kw_only=True):
    """The state of a batch, once a second, whatever its launches report."""

    number: int
    launches: int
    ready: int
    working_s: float | None
    """Time since the common start; None before it."""
    items_per_s: tuple[float, ...]
    """Rate of each launch over five seconds or its last slice, and a long wait since; the mean of its ranks."""
    gauges: dict[str, Gauges] = msgspec.field(default_factory=dict)
    """By slot; of GPUs."""


class LaunchEnds(LaunchEvent, frozen=True, kw_only=True):
    """A launch has its record: a rate, or the cause of its failure."""

    label: str
    role: Role
    attempt: int
    file: str
    """The record's name in the result folder."""
    unit: str
    perf: float | None
    """Items of ``unit`` per second in the averaging window, the mean of the ranks."""
    cause: Cause | None
    """Why it failed; None if it did not."""
    detail: str
    marks: int = 0
    """Of its record."""


class RunEnds(RunEvent, frozen=True, kw_only=True):
    """No batch follows. A session without this event was killed or could not continue."""

    missing: int
    """Launches without a valid record."""
    failed: int
    """Attempts that failed or left nothing, and launches that were never tried."""
    interrupted: bool
    continues_utc: str | None = None
    """When the run begins its next session by itself; None if it ends with this one."""


AnyRunEvent = (
    Note | Stage | Preparing | RunBegins | BatchBegins | LaunchState | Slices | BatchProgress | LaunchEnds | RunEnds
)


class Stamped(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it was published."""

    number: int
    """0, 1, 2... over all events of a session; a sink added later misses the first ones."""
    utc: str
    time_s: float
    """On CLOCK_MONOTONIC, like the slices in records."""
    event: AnyRunEvent
