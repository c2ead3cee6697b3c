"""The fields of records and manifests that a report decodes: ours and those of the 2020 ``milarun``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from milabench_ng.bounds import LARGEST, Amount, Moment, WholeNumber
from milabench_ng.catalogue import Derived
from milabench_ng.plan import Device, Launch, Plan
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.isolation import Tier
from milabench_ng.records.marks import Mark
from milabench_ng.records.stopping import Stopping
from milabench_ng.records.window import SliceRow, WindowRule

Utc = Annotated[datetime, msgspec.Meta(tz=True)]
Factor = Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)]
"""Items of 2020 per item."""


class Extent(msgspec.Struct, frozen=True):
    """One counter of ``gpu_monitor``: the largest sample, -1 if there was none."""

    max: Annotated[float, msgspec.Meta(ge=-1, le=LARGEST)] | None = None


class MonitorView(msgspec.Struct, frozen=True):
    """One device in ``gpu_monitor``. Memory in MiB."""

    memory: Extent | None = None


class TimingView(msgspec.Struct, frozen=True):
    """A timing of 2020: seconds, and items per second of each slice (null if not a number)."""

    time: Moment | None = None
    rates: list[float | None] | None = None


class SkippedView(msgspec.Struct, frozen=True):
    """Optimizer steps that a dynamic loss scale skipped."""

    skipped: WholeNumber


class RankView(msgspec.Struct, frozen=True):
    """The slices of one process, and what it computed: losses, gradient norms and digests by step."""

    slices: list[SliceRow]
    gradient_norms: dict[str, float | None]
    skipped: SkippedView | None
    """None in modes that skip no steps."""
    losses: dict[str, float | None] = {}
    digests: dict[str, str] = {}
    kernels: dict[str, str] = {}
    """What of torch's libraries worked: ``attention``, ``collectives``."""


class DataView(msgspec.Struct, frozen=True):
    """What a launch read."""

    name: str
    kind: str
    scale: Amount
    cache: str


class PrecisionView(msgspec.Struct, frozen=True):
    """The mode that really ran, before ``start`` and after ``stop``."""

    ran_before: str | None = None
    ran_after: str | None = None

    @property
    def ran(self) -> str | None:
        """One mode, or both if it changed during the launch."""
        if self.ran_after is None or self.ran_after == self.ran_before:
            return self.ran_before
        return f"{self.ran_before}, then {self.ran_after}"


class IoView(msgspec.Struct, frozen=True):
    """The I/O share of a tenant."""

    method: str
    read_bytes_per_s: WholeNumber | None = None


class TierView(msgspec.Struct, frozen=True):
    """How strongly a share was enforced."""

    tier: Tier
    io: IoView | None = None


class FailureView(msgspec.Struct, frozen=True):
    """Why a launch failed."""

    cause: str
    detail: str = ""


class GaugeView(msgspec.Struct, frozen=True):
    """What was sampled of one quantity."""

    mean: Amount
    span_s: Amount
    """Time from the first sample to the last; 0 if not known."""
    n: Amount = 0.0
    min: Amount = 0.0
    max: Amount = 0.0


class TelemetryView(msgspec.Struct, frozen=True):
    """The telemetry of one device."""

    utilization_pct: GaugeView | None = None
    power_w: GaugeView | None = None
    energy_j: GaugeView | None = None


class SampledView(msgspec.Struct, frozen=True):
    """When telemetry was sampled, and how many samples were lost."""

    start_s: Moment
    end_s: Moment
    interval_s: Amount
    dropped: WholeNumber


class PaceView(msgspec.Struct, frozen=True):
    """The host pace of one share at both edges of a batch."""

    before: HostPace
    after: HostPace


class MnbView(msgspec.Struct, frozen=True, kw_only=True):
    """What a report needs of our part of a record."""

    schema: int
    version: str = ""
    run_id: str
    session: WholeNumber = 1
    batch: WholeNumber = 0
    launch: Launch
    label: str
    unit: str
    bound: str | None = None
    started_utc: Utc | None = None
    classic_factor: Factor
    derived: tuple[Derived, ...] = ()
    devices: tuple[Device, ...] = ()
    start_s: Moment | None = None
    stop_s: Moment | None
    window_rule: WindowRule
    ranks: list[RankView]
    precision: PrecisionView | None = None
    data: DataView | None = None
    isolation: dict[str, TierView] = {}
    telemetry: dict[str, TelemetryView] = {}
    """By source and key: ``gpu:`` and the UUID, ``tenant:`` and the slot, ``host:node``."""
    gpu_load: dict[str, list[tuple[Moment, Amount]]] = {}
    """Times and utilisation, 0 to 1, by UUID."""
    sampled: SampledView | None
    """None if the telemetry is from start to stop."""
    host_pace: dict[str, PaceView]
    """Host pace by slot; empty if it was not measured."""
    failure: FailureView | None = None
    marks: tuple[Mark, ...] = ()


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """What a report needs of the record of one launch, ours or of 2020."""

    name: str
    job_id: str
    success: bool
    error: str | None = None
    hostname: str | None = None
    device_count: int = 1
    job: dict[str, Any] | None = None
    environ: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    timings: dict[str, TimingView] = {}
    gpu_monitor: dict[str, MonitorView] | None = None
    mnb: MnbView | None = None


class FenceView(msgspec.Struct, frozen=True):
    """What enforced the shares of a run."""

    tier: Tier


class ProfileView(msgspec.Struct, frozen=True):
    """Which profile was run."""

    sha256: str
    text: str = ""


class CpusView(msgspec.Struct, frozen=True):
    """The processors of the node."""

    model: str
    sockets: int
    cores: int

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.sockets} x {self.model}, {self.cores} cores in all"


class GpuView(msgspec.Struct, frozen=True):
    """A GPU of the node, or a MIG instance of the GPU ``parent``."""

    uuid: str
    parent: str | None = None


class InventoryView(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says of the node."""

    hostname: str = ""
    boot_id: str | None = None
    machine: str | None = None
    gpus: tuple[GpuView, ...] = ()
    virtualization: str | None = None
    kernel: str = ""
    cpus: CpusView
    memory_bytes: WholeNumber
    nvidia_driver: str | None = None
    mps: str | None = None


class RequestView(msgspec.Struct, frozen=True):
    """What a report needs of what the user asked for."""

    sessions: int = 1


class ManifestView(msgspec.Struct, frozen=True, kw_only=True):
    """What a report needs of the manifest."""

    schema: int
    run_id: str
    version: str
    started_utc: str
    plan: Plan
    profile: ProfileView | None = None
    fence: FenceView
    inventory: InventoryView | None = None
    software: dict[str, str] = {}
    software_key: str = ""
    request: RequestView = RequestView()
    stopping: Stopping | None = None
