"""What a record is made from: what all launches of a run share, and what was seen of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from milabench_ng.catalogue import Workload
from milabench_ng.fence.io import limits
from milabench_ng.node.conditions import Conditions
from milabench_ng.orchestrator.execution.batch import GroupEvidence, Timeline
from milabench_ng.orchestrator.execution.tenant import RankLog
from milabench_ng.plan import Device, Launch
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.isolation import IoEvidence, Isolation, Share
from milabench_ng.records.record import Data, Failure, Neighbours, Sampled
from milabench_ng.records.window import Window, WindowRule


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all records of a run share."""

    run_id: str
    session: int
    group: str
    """The run's name below which its groups are."""
    differences: tuple[str, ...]
    """From the first session, as the user accepted them."""
    hostname: str
    dataroot: str
    outdir: str
    devices: Mapping[int, Device]
    boards: Mapping[int, str]
    """The UUID of the physical GPU behind each device, which is what clocks, power and faults are known of."""
    workloads: Mapping[str, Workload]
    shares: Mapping[int, Share]
    """By device; `share` adds what differs between tests."""
    io: Mapping[str, IoEvidence]
    """The I/O shares that were asked for, by test (`suite.test`)."""
    fence: Isolation
    """The fence of the run, without a tenant's part."""
    start: str
    rule: WindowRule
    dropped_environment: tuple[str, ...]

    def share(self, test: str, device: int) -> Share:
        """What the tenant of a device gets while it runs a test."""
        return msgspec.structs.replace(self.shares[device], io=limits(self.io.get(test)))


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one launch."""

    launch: Launch
    attempt: int
    batch: int
    started: datetime
    """When it was asked for (UTC), at ``requested_s``."""
    requested_s: float
    ready_s: float | None
    ended_s: float
    timeline: Timeline
    window: Window | None
    ranks: Sequence[RankLog]
    exit_status: int | None
    failure: Failure | None
    groups: Mapping[int, str]
    """Names of its groups, by device."""
    shares: Mapping[int, Share]
    """What those were asked to hold."""
    evidence: Mapping[int, GroupEvidence]
    disjoint: bool | None
    """Whether no CPU was in the share of two tenants of the batch, as the kernel gave them."""
    neighbours: Neighbours
    data: Data | None
    environment: dict[str, str]
    conditions: tuple[Conditions, Conditions]
    host_pace: Mapping[int, tuple[HostPace, HostPace]]
    """Of its shares, by device: before and after."""
    gpu_monitor: dict[str, Any]
    telemetry: dict[str, dict[str, dict[str, float]]]
    sampled: Sampled
