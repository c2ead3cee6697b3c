"""The input of a record: what all launches of a session share, and what was observed of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from milabench_ng.model.bounds import Spread
from milabench_ng.model.plan import Launch
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.storage import Storage
from milabench_ng.records.batch_search import BatchSearch
from milabench_ng.records.endurance import Endurance
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.isolation import Isolation, Share
from milabench_ng.records.record import Data, Failure, Gauge, Gauge2020, Neighbours, SamplingSpan
from milabench_ng.records.surroundings import Surroundings
from milabench_ng.records.window import Window
from milabench_ng.run.execution.group_evidence import GroupEvidence
from milabench_ng.run.execution.tenant import RankLog
from milabench_ng.run.persistence.sessions import LedgerSession
from milabench_ng.run.planning.planned_run import PlannedRun


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What all records of a session share."""

    planned: PlannedRun
    begun: LedgerSession
    hostname: str
    boards: Mapping[str, str]
    """UUID of the physical GPU behind each slot; clocks, power and faults are known for it only."""
    fence: Isolation
    """The run's fence, without the tenants' parts."""
    dataroot: Storage
    """What the datasets, and the files of tests that write some, lie on."""
    dropped_environment: tuple[str, ...]


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What was observed of one launch."""

    launch: Launch
    attempt: int
    batch: int
    started: datetime
    """When it was requested (UTC), at ``requested_s``."""
    requested_s: float
    ready_s: float | None
    ended_s: float
    start_s: float | None
    """When it began to work, with its batch (monotonic); None if that did not, like the next."""
    stop_s: float | None
    window: Window | None
    ranks: Sequence[RankLog]
    exit_status: int | None
    failure: Failure | None
    groups: Mapping[str, str]
    """Names of its groups, by slot."""
    shares: Mapping[str, Share]
    """Requested shares of those groups."""
    evidence: Mapping[str, GroupEvidence]
    disjoint: bool | None
    """Whether no CPU was in two tenants' shares, as the kernel gave them."""
    batch_search: BatchSearch | None
    """How its batch size was found; None if it was given."""
    neighbours: Neighbours
    data: Data | None
    environment: dict[str, str]
    conditions: tuple[Conditions, Conditions]
    surroundings: tuple[Surroundings, Surroundings]
    strays: tuple[str, ...]
    """Processes of the batch that outlived its groups."""
    cache_spread: float
    """How far the page caches of the batch's tenants are apart, as a part of a share."""
    host_pace: Mapping[str, tuple[HostPace, HostPace]]
    """Pace of its shares by slot, before and after."""
    gpu_monitor: dict[str, dict[Gauge2020, Gauge]]
    telemetry: dict[str, dict[str, Spread]]
    gpu_load: dict[str, list[tuple[float, float]]]
    """Times and utilisation, 0 to 1, of each GPU from start to stop."""
    sampled: SamplingSpan
    endurance: Endurance | None = None
    """Both ends of a launch that was to work for long."""
    sampler_problem: str = ""
    """Why the sampler gives no more samples."""
    foreign_cpu: float | None = None
    """Share of the busy CPU time in the window that no tenant of the batch used; None if unknown."""
    xids: Mapping[str, Sequence[int]] = {}
    """Errors that the driver reported, by UUID of the physical GPU."""
    paused_s: float = 0.0
    """How long the orchestrator stood still during the batch."""
