"""The record: the JSON file of one launch.

The outer fields are those of the 2020 ``milarun`` tool, so that readers written for it still work; ours are under
``mnb``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from milabench_ng.model.bounds import Amount, Factor, Moment, Spread, Utc, WholeNumber
from milabench_ng.model.catalogue import Bound, Derived, Scalar
from milabench_ng.model.events import Cause
from milabench_ng.model.plain import whole_json
from milabench_ng.model.plan import Device, Launch, Role
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.edge import Edge
from milabench_ng.records.batch_search import BatchSearch
from milabench_ng.records.endurance import Endurance
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.marks import Mark
from milabench_ng.records.origin import RECORD_SCHEMA
from milabench_ng.records.precision_seen import PrecisionSeen
from milabench_ng.records.surroundings import Surroundings
from milabench_ng.records.verified import Verified
from milabench_ng.records.window import SliceRow, Window, WindowRule


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of a failed launch and what is known of it."""

    cause: Cause
    detail: str
    traceback: str | None = None


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of the same batch that ended before the common stop."""

    job_id: str
    label: str | msgspec.UnsetType = msgspec.UNSET
    """Left away for the row of the launch itself."""
    cause: Cause
    seconds_before_stop: float | None = None


class ConcurrentLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of the same batch."""

    job_id: str
    label: str | msgspec.UnsetType = msgspec.UNSET
    """Left away for the row of the launch itself."""
    role: Role | msgspec.UnsetType = msgspec.UNSET
    """Omitted for ``measured``."""


class Neighbours(msgspec.Struct, frozen=True, kw_only=True):
    """The launches that worked at the same time."""

    planned: int
    alive_at_stop: int
    lost: tuple[Neighbour, ...] = ()
    who: tuple[ConcurrentLaunch, ...] | msgspec.UnsetType = msgspec.UNSET
    """All of them; omitted if all were measured for the same row."""


def kind_word(kind: object) -> str:
    """How people read the kind of a dataset."""
    return "synthetic" if kind == "twin" else str(kind)


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What the launch read."""

    name: str
    kind: Literal["twin", "classic", "real"]
    """Generated, generated as 2020 did (`--classic-data`), or the real set."""
    scale: Amount
    path: str
    checksum: str | None
    cache: Literal["cold", "warm", "mixed", "uncontrolled"]
    """State of the page cache before the batch, the same for all tenants; uncontrolled if it could not be measured."""
    resident_fraction: float | None
    """Part of the set's bytes in the page cache, from 0 to 1."""


class CodeSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the workload's code came from."""

    workload: str
    origin: str
    package: str
    sha256: str
    """Hash of the concatenated files of ``modules``."""
    modules: tuple[str, ...]
    """Its module and those of the same package that it imports."""


SKIPPED_LIMIT = 0.01
"""Share of the steps after settling. A scale that is raised every 2,000 steps skips one in 2,000."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Optimizer steps that a dynamic loss scale skipped for infinite gradients; they were work nevertheless."""

    steps: int
    """All attempted steps."""
    skipped: WholeNumber
    settled_steps: int
    """Steps attempted after the rank had settled, when a scale that began too high has come down."""
    settled_skipped: int

    @property
    def too_many(self) -> float | None:
        """The share of steps skipped after settling if it is over the limit, otherwise None."""
        if self.settled_skipped <= SKIPPED_LIMIT * self.settled_steps:
            return None
        return self.settled_skipped / self.settled_steps if self.settled_steps > 0 else 1.0


PROBED_STEPS = (1, 2, 5, 10, 100)
"""Step 1 is on the same batch for all tenants; step 2 shows the parameters that step 1 left. More follow later
(`records.late_steps`)."""
DIGEST_STEP = 100
"""Of training and inference; what has no model gives a digest at all probed steps."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of the launch measured."""

    rank: int
    device: int
    pid: int | None
    count: int
    full_s: float | None
    slices: list[SliceRow]
    backlog: tuple[float, float] | None
    """Items made but not yet requested, at the edges of the window; null if nothing is made ahead."""
    losses: dict[str, float | None] = {}
    """By step, of `PROBED_STEPS` and `records.late_steps`; null if not finite."""
    gradient_norms: dict[str, float | None]
    """By the same steps: the 2-norm of all gradients, unscaled and not clipped; null if not finite."""
    skipped: Skipped | None
    """Null in modes that skip no steps."""
    digests: dict[str, str] = {}
    """Digests of all parameters, by step."""
    torch_threads: int | None = None
    peak_device_bytes: int | None = None
    kernels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """What of torch's libraries worked: by what they do, such as ``attention`` (`bench.library_kernels`);
    omitted without any."""
    verified: Verified | msgspec.UnsetType = msgspec.UNSET
    """What was verified of its work; omitted if its workload verifies nothing."""


class SamplingSpan(msgspec.Struct, frozen=True, kw_only=True):
    """What the telemetry of a launch covers."""

    start_s: Moment
    """Monotonic: begin of the averaging window or, if there is none, of the time from start to stop."""
    end_s: Moment
    interval_s: Amount
    """Time between two samples."""
    dropped: WholeNumber
    """Samples of the whole node lost from start to stop because they were not read in time."""


class Mnb(msgspec.Struct, frozen=True, kw_only=True):
    """Our part of a record."""

    schema: int = RECORD_SCHEMA
    version: str
    run_id: str
    started_utc: Utc
    session: WholeNumber
    """Which session of the orchestrator made it: 1, more after `--resume`."""
    attempt: int
    """Which attempt of the launch it is; 0 for company."""
    batch: WholeNumber
    launch: Launch
    label: str
    unit: str
    bound: Bound | None
    """What sets the workload's pace, as its author declares."""
    classic_factor: Factor
    derived: tuple[Derived, ...] = ()
    """The rate in other units."""
    pace_only: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its workload's own options that change only the pace, not the work; omitted without any."""
    paced_by: str | msgspec.UnsetType = msgspec.UNSET
    """The option that set its pace instead of what its workload is bound by; omitted without one."""
    source: CodeSource
    devices: tuple[Device, ...]
    environment: dict[str, str]
    dropped_environment: tuple[str, ...]
    start: Literal["warm", "cold"]
    phases_s: dict[str, float]
    """Seconds from start to ready, by phase; ``batch size``, the search for one, was before the start."""
    batch_search: BatchSearch | msgspec.UnsetType = msgspec.UNSET
    """How an automatic batch size was found; omitted for one that was given."""
    start_to_ready_s: float | None
    start_s: Moment | None
    """When ``Start`` was sent (monotonic)."""
    stop_s: Moment | None
    """When ``Stop`` was sent, or the launch ended (monotonic)."""
    window_rule: WindowRule
    window: Window | None
    ranks: list[Rank]
    precision: PrecisionSeen | None
    data: Data | None
    neighbours: Neighbours
    isolation: dict[str, Isolation]
    """Isolation by slot: a launch over K devices has K shares."""
    conditions: dict[Edge, Conditions]
    xids: dict[str, tuple[int, ...]] | msgspec.UnsetType = msgspec.UNSET
    """Errors that the driver reported meanwhile, by UUID of the physical GPU; omitted in records of before 0.4."""
    surroundings: dict[Edge, Surroundings] | msgspec.UnsetType = msgspec.UNSET
    """CPU quotas, other runs and mnb itself; omitted in records of before 0.4."""
    host_pace: dict[str, dict[Edge, HostPace]]
    """Pace of each share's CPUs, by slot; empty if it was not measured."""
    telemetry: dict[str, dict[str, Spread]]
    """By source and key (``gpu:`` and the UUID, ``tenant:`` and the slot, ``host:node``), by quantity."""
    gpu_load: dict[str, list[tuple[Moment, Amount]]] | msgspec.UnsetType = msgspec.UNSET
    """Samples from start to stop, by GPU: time (monotonic) and utilisation, 0 to 1; omitted without any."""
    sampled: SamplingSpan | None
    power_fraction: dict[str, Amount] | msgspec.UnsetType = msgspec.UNSET
    """Mean power of each GPU in the window as a part of the limit in force, by slot; omitted if unknown."""
    endurance: Endurance | msgspec.UnsetType = msgspec.UNSET
    """Both ends of a launch that was to work for long (``--for``); omitted for others."""
    failure: Failure | None
    exit_status: int | None
    """0 to 255, or the negative number of the signal."""
    marks: tuple[Mark, ...]
    """Everything that makes this result not comparable."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The call (2020)."""

    function: str
    argv: tuple[str, ...]
    arguments: dict[str, Scalar | None]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """A timing of 2020. Dates are seconds since 1970, durations seconds, rates items per second."""

    type: str
    start: float
    end: float
    time: Moment
    wall_time: float | None = None
    overhead: float | None = None
    sample_duration: float | None = None
    rates: list[float] | None = None
    metrics: dict[str, float] | None = None


def timing_name(launch: Launch, rank: int) -> str:
    """The name of a rank's timing, as in 2020."""
    return f"train_{rank}" if launch.scheme.spreads else "train"


Gauge2020 = Literal["load", "memory", "temperature"]


class Gauge(msgspec.Struct, frozen=True):
    """The samples of one quantity (2020); -1 if there was none."""

    min: Moment
    mean: Moment
    max: Moment


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One launch."""

    name: str
    job_id: str
    dataroot: str
    outdir: str
    job: dict[str, Any]
    device: int
    devices: tuple[int, ...]
    call: Call
    success: bool
    error: str | None
    hostname: str
    gpu: str | None
    device_count: int
    environ: dict[str, str]
    metrics: dict[str, float | None]
    """Null if not finite."""
    timings: dict[str, Timing]
    gpu_monitor: dict[str, dict[Gauge2020, Gauge]]
    """By device index, from start to stop (2020): load 0 to 1, memory in MiB, temperature in degrees Celsius."""
    mnb: Mnb


def encode_record(record: Record) -> bytes:
    """Indented JSON; not-a-number becomes null."""
    return msgspec.json.format(whole_json(record), indent=1) + b"\n"
