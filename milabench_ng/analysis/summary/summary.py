"""The summary type: what is known about every test of a folder, and the contents of a stored baseline.

The keys of a test are those of 2020 (``n``, ``failures``, ``total``, ``train``, ``pergpu``, ``peak_memory``), alongside
ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from milabench_ng.analysis.conditions.condition import Condition
from milabench_ng.analysis.launch.bottleneck import Bottleneck
from milabench_ng.analysis.launch.host_paces import Paces
from milabench_ng.analysis.statistics.intervals import LogStat
from milabench_ng.analysis.summary.stress import Drift
from milabench_ng.model.bounds import Amount, Latencies, Utc
from milabench_ng.model.profile import suite_of
from milabench_ng.model.stats import mean, population_std
from milabench_ng.records.isolation import Tier, weakest_tier
from milabench_ng.records.latency import batches, quantile_s
from milabench_ng.records.ledger import NOT_TRIED
from milabench_ng.records.marks import Mark
from milabench_ng.records.reading import Problem
from milabench_ng.records.separate_sessions import SESSION_GAP_H
from milabench_ng.records.verified import VerifiedWork
from milabench_ng.records.work import Work

SUMMARY_SCHEMA = 2

_STEP = re.compile(r"[1-9][0-9]{0,3}")
Tally = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
DeviceCount = Annotated[int, msgspec.Meta(ge=1, le=10**4)]
OriginKind = Literal["measured", "published", "estimated"]

_WIDEST = 1e6
"""The widest band of an estimate, as a factor of its value: a wider one is meaningless and may overflow."""

LEFT = ("missing", *NOT_TRIED)
"""Causes of failures that an interrupted run makes up for when it is resumed."""


class Stat(msgspec.Struct, frozen=True):
    """Statistics of several numbers; ``std`` is the population standard deviation, as in 2020."""

    n: Tally
    min: Amount
    max: Amount
    mean: Amount
    std: Amount

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat:
        """The statistics of at least one number."""
        return cls(len(values), min(values), max(values), mean(values), population_std(values))


class LaunchFlag(msgspec.Struct, frozen=True, kw_only=True):
    """Something odd about a launch, or a whole repeat, that still counts."""

    job_id: str
    """Of a repeat, its number."""
    kind: Literal[
        "drift",
        "sawtooth",
        "no steady state",
        "stall",
        "burst",
        "backlog",
        "bottleneck",
        "idle GPU",  # in earlier summaries: a bottleneck that is not the declared GPU
        "host pace",
        "outlier",
        "slow repeat",
    ]
    detail: str


FLAG_WORDS = {"host pace": "CPU speed change", "backlog": "prefetched items", "bottleneck": "another bottleneck"}
"""How people read the kinds of flags, where that is not their name in JSON."""


def flag_word(kind: str) -> str:
    """The kind of an anomaly."""
    return FLAG_WORDS.get(kind, kind)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of one row's numbers, if it is not the summary's."""

    kind: OriginKind
    source: str
    software: str = ""
    """The software behind the figure, if its source says."""
    caveat: str = ""


class EstimatedRate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that was not measured. Items per second."""

    value: Amount
    low: Amount
    high: Amount
    """``low`` to ``high`` is a 95 % prediction band, as far as the rule behind it was checked."""
    held: Tally = 0
    """How many of the ``known`` pairs were inside the band of the rule when it had not seen them."""
    known: Tally = 0
    """0 if the rule was not checked."""

    def __post_init__(self) -> None:
        if not 0 < self.value / _WIDEST <= self.low <= self.value <= self.high <= self.value * _WIDEST:
            raise ValueError(f"an estimate of {self.value:g} with a band of {self.low:g} to {self.high:g}")


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long batches of inference take, from the call to their outputs on the host, or what of items is timed."""

    batches: Tally
    """How many, or how many items, in the windows of all launches."""
    p50_ms: Amount
    p99_ms: Amount

    @classmethod
    def of(cls, latencies: Latencies) -> Latency | None:
        """The quantiles of a histogram; None for an empty one."""
        if not latencies:
            return None
        p50_s, p99_s = (quantile_s(latencies, share) for share in (0.5, 0.99))
        return cls(batches=batches(latencies), p50_ms=1e3 * p50_s, p99_ms=1e3 * p99_s)


class ReadLimit(msgspec.Struct, frozen=True):
    """The bandwidth at which each tenant may read its dataset."""

    bytes_per_s: Annotated[int, msgspec.Meta(ge=1, le=10**15)]
    method: str
    """What holds it, as in the record: `readers` are the dataset's own."""


class Pressing(msgspec.Struct, frozen=True, kw_only=True):
    """What an antagonist does: its workload, and the share of the time in which it presses, 0 to 1."""

    workload: str
    busy: Amount


Boundary = Literal["GPU", "GPU + CPU", "CPU", "wall"]
"""What is inside an energy: the GPUs; with the processor packages; those alone, where no GPU works; all of the node."""


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """What the launches of a test took, within a boundary."""

    boundary: Boundary
    watts: Amount
    """Mean power of all that works on the test at the same time."""
    joules_per_item: Amount | None
    """None if the windows of all launches are shorter than `energy.LEAST_S` together."""
    seconds: Amount
    """Length of those windows."""
    basis: tuple[str, ...]
    """What it rests on, in words."""

    @property
    def items_per_joule(self) -> float | None:
        """Also the rate per watt."""
        return 1 / self.joules_per_item if self.joules_per_item else None


class StepTally(msgspec.Struct, frozen=True, kw_only=True):
    """How many steps a launch did: the median over the launches of a row."""

    before: Tally
    """Before the window."""
    measured: Tally
    """In the window."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """How a row's measurement departs from what its test is today."""

    what: str
    decides: bool
    """Whether it changes the work behind an item, so that a ratio would compare different work."""


class FailedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A launch that failed, by name."""

    job_id: str
    cause: str
    detail: str = ""
    file: str | None = None
    """Its record; one that is missing has it if the ledger names one."""


def check_counts(n: int, failures: int, train: Stat | None) -> None:
    """Raise ValueError, which readers turn into a refusal, for a row with impossible counts."""
    if failures > n:
        raise ValueError(f"{failures} of {n} launches failed")
    if train is not None and not n:
        raise ValueError("a rate of no launch")


class TestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a test, or one step of a progression. Rates are in items per second, times in seconds, memory in MiB."""

    __test__ = False  # not a pytest class

    n: Tally
    failures: Tally
    total: Stat | None = None
    """Run time of the whole program, in seconds."""
    train: Stat | None = None
    """Items per second of a launch; None if every launch failed."""
    pergpu: dict[str, Stat] | None = None
    """``train`` by device index, for launches over one device."""
    peak_memory: Amount = 0.0
    work: Work = Work()
    devices: DeviceCount = 1
    """How many devices work on this test at the same time."""
    company: dict[str, Amount] | None = None
    """Mean rates of the tests that other devices ran meanwhile, by name: none if it ran alone; None if all ran it."""
    company_units: dict[str, str] = {}
    """What the tests in ``company`` count, by name, as far as it is known."""
    pressing: dict[str, Pressing] = {}
    """The tests in ``company`` that press on something, by name."""
    planned: Tally | None = None
    """How many launches the plan promised; None if there is no plan."""
    missing: Tally = 0
    """Planned launches without a record after the end of the run; counted in ``n`` and ``failures``."""
    pending: Tally = 0
    """Planned launches without a record while the run is in progress."""
    failed: tuple[FailedLaunch, ...] = ()
    launches: dict[str, Amount] = {}
    """``perf`` by job id."""
    repeats: dict[str, Amount] = {}
    """Mean ``perf`` over the devices by repeat; repeats that lack a device are left out."""
    sessions: dict[str, Annotated[int, msgspec.Meta(ge=1, le=10**9)]] = {}
    """The session of each repeat, from 1; empty if there is only one."""
    log_perf: LogStat | None = None
    """The logarithms of ``repeats``, the basis of the intervals. None if repeats are not recorded (2020)."""
    ranks: dict[str, Amount] = {}
    """Mean rate by device, for launches over several devices."""
    flags: tuple[LaunchFlag, ...] = ()
    power_w: Amount | None = None
    """Mean power of one device while it worked, in watts; None if unknown."""
    power_basis: tuple[str, ...] = ()
    """What ``power_w`` rests on, in words; empty if unknown."""
    power_launches: Tally | None = None
    """How many launches have a known power; None if not counted."""
    energy: tuple[Energy, ...] = ()
    """By boundary; empty if nothing is known, and in summaries of earlier versions."""
    telemetry_dropped: Tally = 0
    """Telemetry samples lost in the launch that lost the most."""
    gpu_load: dict[str, Amount] = {}
    """Share of the windows in which a kernel ran on a GPU, 0 to 1, by repeat as in ``repeats``; empty if unknown."""
    bottleneck: Bottleneck | None = None
    """What set the pace of its launches, as measured in most of them; None if unknown."""
    read_limits: tuple[ReadLimit, ...] = ()
    """The limits of its launches; empty if they were free to read as they could."""
    wait_share: Amount | None = None
    """Share of the window's time spent waiting for data, 0 to 1."""
    latency: Latency | None = None
    """None except for inference."""
    item_latency: dict[str, Latency] = {}
    """By what of its items the workload times, such as ``TTFT``."""
    notes: dict[str, Amount] = {}
    """What its workload noted of its steps, for the formulas of derived units: means per step and launch, by name."""
    verified: tuple[VerifiedWork, ...] = ()
    """What was verified of the work of all its launches, also of those that failed; empty if it verifies nothing."""
    power_fraction: Amount | None = None
    """The part of the power limit that its GPU reached that reached least; None if unknown."""
    drift: Drift | None = None
    """The launch whose rate fell most from its first minutes to its last; None if none was to work for long."""
    answers: dict[str, str] = {}
    """The result of the first step of work that is verified, by all that decides it (`analysis.summary.answers`)."""
    steps: StepTally | None = None
    """None if not recorded."""
    items_per_step: Amount | None = None
    """Mean over the steps of a launch; None if not recorded."""
    started_utc: Utc | None = None
    """When its first launch started; None if not recorded."""
    tiers: tuple[Tier, ...] = ()
    kernels: tuple[str, ...] = ()
    """What of torch's libraries worked, such as ``attention flash``; empty if nothing of it was seen."""
    marks: tuple[Mark, ...] = ()
    """The worst mark of each kind on each device."""
    conditions: tuple[Condition, ...] = ()
    """Of each kind the worst; beyond their limits, of each subject. Empty in summaries of earlier versions."""
    reference: tuple[str, ...] = ()
    """Whether its launches were compared with reference traces, in words; empty if unknown."""
    origin: Origin | None = None
    """None if it is that of the summary."""
    estimate: EstimatedRate | None = None
    """Replaces ``train`` in a row that was not measured."""
    departures: tuple[Departure, ...] = ()

    def __post_init__(self) -> None:
        check_counts(self.n, self.failures, self.train)
        if self.estimate is not None and (self.n or self.train):
            raise ValueError("a row is measured or estimated, not both")

    @property
    def rated(self) -> bool:
        """Whether it has a rate above 0, after the penalties for spread and failures, in items that are known."""
        measured = self.train is not None and self.train.mean > self.train.std and self.failures < self.n
        known = measured or (self.estimate is not None and self.estimate.value > 0)
        return known and self.work.classic_factor is not None

    def bound_by(self, bound: str | None) -> TestSummary:
        """The same row with another declaration of what sets its pace."""
        return msgspec.structs.replace(self, work=msgspec.structs.replace(self.work, bound=bound))

    @property
    def sharing(self) -> Mark | None:
        """The mark that several tenants shared each device; None if each had its own."""
        return next((mark for mark in self.marks if mark.kind == "shared devices"), None)


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers come from."""

    kind: OriginKind
    source: str
    hardware: str
    software: dict[str, str] = {}
    node: dict[str, str] = {}
    """Machine, processors, memory, kernel and driver, in words."""
    notes: tuple[str, ...] = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A result folder in numbers; when stored, a baseline."""

    schema: int = SUMMARY_SCHEMA
    job_id: None = None
    """Null, so that a reader of a result folder skips this file."""
    suite: str
    """Of the profile."""
    suites: tuple[str, ...] = ()
    """The suites that its tests are scored in, by name; empty if that is ``suite``."""
    units: Literal["true", "classic"]
    """``classic``: rates count the items of 2020; ``true``: those that ``unit`` names."""
    devices: DeviceCount
    models: dict[str, str] = {}
    """The devices' models by index; empty if not recorded."""
    node_devices: DeviceCount | None = None
    """How many such devices the node has; None if not recorded, and for parts of its processors."""
    provenance: Provenance
    has_plan: bool
    sessions: int = 1
    """How many sessions made the records, with hours between one and the next."""
    starts: int = 1
    """How often ``mnb`` began or went on, by the ledger; without one, the number of runs."""
    runs: tuple[str, ...] = ()
    """Ids of the runs that made the records; empty if not recorded."""
    profile_sha256: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    """The unusual batch orders of runs, in words."""
    going_on: bool = False
    interrupted: bool = False
    """Whether the run ended before all its launches were tried, by its ledger."""
    between_sessions: bool = False
    """Whether it was to end there: the launches that are left are those of later sessions."""
    left_s: Amount | None = None
    """Time that a run in progress will take yet, at its pace so far; None if that is unknown."""
    omitted: tuple[str, ...] = ()
    """Rows of tests in the profile that the user did not select."""
    unplanned: dict[str, str] = {}
    """Rows of tests that the node cannot run, and why; they have no weight."""
    notes: tuple[str, ...] = ()
    host_pace: Paces | None = None
    """None if it was not measured."""
    energy_kwh: dict[str, Amount] = {}
    """What the run used, by boundary; one that is not known is left out."""
    idle_w: dict[str, Amount] = {}
    """What the node drew before the run, by boundary."""
    tests: dict[str, TestSummary]
    problems: tuple[Problem, ...] = ()
    """Files that should have been records but could not be assigned to a row: each counts as a failed launch."""

    def origin(self, label: str) -> OriginKind:
        """Whether a row was measured by us, published by others or estimated."""
        own = self.tests[label].origin
        return own.kind if own else self.provenance.kind

    @property
    def known_suites(self) -> tuple[str, ...]:
        """The suites that its tests are scored in, also if that is one."""
        return self.suites or (self.suite,)

    @property
    def distinct_devices(self) -> int:
        """How many devices worked: ``devices`` counts tenants, and several may share one."""
        return len(self.models) or self.devices

    @property
    def isolation(self) -> str:
        """The weakest tier of any launch; empty if none is recorded."""
        tiers = [tier for row in self.tests.values() for tier in row.tiers]
        return weakest_tier(tiers) if tiers else ""

    def is_of_the_run(self, other: Summary) -> bool:
        """Whether it is of the same measurement as ``other``: by run id, or, where one has none, by its rates."""
        if self.runs and other.runs:
            return bool(set(self.runs) & set(other.runs))
        both = [(row.train, other.tests[label].train) for label, row in self.tests.items() if label in other.tests]
        measured = [(ours, theirs) for ours, theirs in both if ours is not None]
        return bool(measured) and all(ours == theirs for ours, theirs in measured)

    @property
    def merged_sessions(self) -> str:
        """That sessions count as fewer, since they follow each other too soon; empty if they do not."""
        if self.starts <= self.sessions:
            return ""
        fewer = "one" if self.sessions == 1 else str(self.sessions)
        return f"{self.starts} sessions count as {fewer}: they are less than {SESSION_GAP_H:g} h apart"

    @property
    def one_after_another(self) -> bool:
        """Whether all repeats of a test ran before those of the next one (``--order file``)."""
        return any(order.startswith("file") for order in self.orders)

    @property
    def launches(self) -> int:
        """The number of launches that ended, including those that left nothing readable."""
        return sum(row.n for row in self.tests.values()) + len(self.problems)

    @property
    def failures(self) -> int:
        """The number of failed launches."""
        return sum(row.failures for row in self.tests.values()) + len(self.problems)


def progression_steps(labels: list[str]) -> dict[str, int]:
    """The labels that are steps of a progression (``suite.test.K``), with their K."""
    parts = {label: label.rpartition(".") for label in labels}
    return {label: int(step) for label, (base, _, step) in parts.items() if _STEP.fullmatch(step) and "." in base}


def suite_of_row(label: str) -> str:
    """The suite of the row with this label: ``suite.test`` or ``suite.scaling.K``."""
    return suite_of(suite_of(label) if progression_steps([label]) else label)


def name_of_row(label: str) -> str:
    """The label of a row without its suite: ``test`` or ``scaling.K``."""
    return label.removeprefix(f"{suite_of_row(label)}.")
