"""Everything that the rules examine, as one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from milabench_ng.analysis.scoring.failure_rate import FailureRate, failure_rate
from milabench_ng.analysis.summary.ending import left_pending
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.model.builtin import Declared
from milabench_ng.model.grouping import grouped
from milabench_ng.model.known_twins import KnownTwin
from milabench_ng.model.plan import Plan
from milabench_ng.records.borders import asked
from milabench_ng.records.ledger import Chain
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.origin import release
from milabench_ng.records.reading import Problem, ReadRecord
from milabench_ng.records.record import Record
from milabench_ng.records.retried import Good, superseded
from milabench_ng.verification.bundle import Claim, PackingList
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.signing import Signer
from milabench_ng.verification.stamping import Stamp


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The SHA-256 of the file that was used, of the one that is demanded and of the shipped one; None without any."""

    used: str | None
    demanded: str | None
    shipped: str | None = None

    @property
    def own(self) -> bool:
        """Whether nobody but the sender knows the file."""
        return self.used is not None and self.demanded is None and self.shipped is None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A fully read result folder, with the demands on it and the numbers recomputed from its slices."""

    source: str
    """What the user calls the folder."""
    rules: Rules
    packing: PackingList | None
    """The packing list of a bundle; None for a plain folder."""
    damage: tuple[str, ...]
    """What is not as it was packed."""
    foreign: tuple[str, ...]
    """Files that belong to no run."""
    strays: tuple[str, ...]
    """Those of them in JSON that no report reads: they change nothing, and are named."""
    signer: Signer
    stamps: tuple[Stamp, ...]
    """Time stamps on heads of the ledger."""
    going_on: bool
    manifest: Manifest
    profile: Pinned
    shipped_profile: str | None
    """The name of the shipped profile of the same bytes: its suite, whatever the sender called the file."""
    weights: dict[str, Pinned]
    """By suite."""
    known: tuple[Summary, ...]
    """The shipped baselines that were measured with this suite on devices of the same name."""
    records: tuple[ReadRecord, ...]
    series: Mapping[str, str]
    """SHA-256 of the files of telemetry, by name."""
    ledger: Chain
    """Empty if there is none."""
    unreadable: tuple[Problem, ...]
    summary: Summary
    claim: Claim
    """The numbers that a report prints, recomputed."""
    package: dict[str, str]
    """SHA-256 of each room of this installation's package (`sources.package_digests`)."""
    known_twins: tuple[KnownTwin, ...]
    """The twins whose checksums this version knows."""
    builtin: Mapping[str, Declared]
    """What this installation's workloads declare, by name."""
    version: str
    """The version of this installation."""

    @property
    def has_ledger(self) -> bool:
        """Whether there is one, sound or not: even an empty file is no empty chain, but a problem."""
        return self.ledger != Chain()

    @property
    def same_version(self) -> bool:
        """Whether the version of this installation ran, however it is written."""
        return release(self.manifest.version) == release(self.version)

    @property
    def declared(self) -> dict[str, Declared]:
        """What workloads declare, by name: built-in ones here, those of other packages in the manifest."""
        return {**self.manifest.declared, **self.builtin}

    @property
    def as_ran(self) -> dict[str, Declared]:
        """The same without the built-in ones if another version ran."""
        return self.declared if self.same_version else self.manifest.declared

    @property
    def launches_planned(self) -> dict[int, int]:
        """How many launches the plan has in each batch, by its number."""
        return {batch.number: len(batch.launches) for batch in self.manifest.plan.batches}

    @property
    def asked(self) -> Plan:
        """The part of the plan that the run's rule for stopping asked for, by the ledger: all of it without one."""
        plan = self.manifest.plan
        return plan if self.manifest.stopping is None else asked(plan, self.ledger.events)

    @property
    def measured(self) -> tuple[ReadRecord, ...]:
        """The records of launches that ran for their own result, not as company."""
        return tuple(kept for kept in self.records if kept.record.mnb.launch.measured)

    @property
    def failures(self) -> FailureRate:
        """Of the launches that were tried; what an interrupted run has left is told apart."""
        return failure_rate(left_pending(self.summary))

    @property
    def boards(self) -> Mapping[str | None, str]:
        """UUID of the physical GPU of each device of the inventory, by its own."""
        return {gpu.uuid: gpu.board for gpu in self.manifest.inventory.gpus}

    @property
    def superseded(self) -> frozenset[str]:
        """The files of launches that had lost a neighbour, and that a retry measured again beside it."""
        return frozenset(
            superseded(
                [
                    Good(kept.file, (mnb.label, kept.record.job_id), mnb.started_utc, mnb.marks)
                    for kept in self.good
                    if (mnb := kept.record.mnb).launch.measured
                ]
            )
        )

    @property
    def good(self) -> tuple[ReadRecord, ...]:
        """The records of launches that did not fail."""
        return tuple(kept for kept in self.records if kept.record.success)

    def batches(self) -> dict[tuple[int, datetime], list[ReadRecord]]:
        """The records by batch and the time (UTC) at which it began: each group worked at the same time."""
        return grouped(self.records, lambda kept: (kept.record.mnb.batch, kept.record.mnb.started_utc))

    def known_rows(self, label: str) -> Iterator[tuple[Summary, TestSummary]]:
        """The measured baselines of the same GPU whose test ``label`` can be compared, with its row."""
        row = self.summary.tests.get(label)
        for known in self.known:
            other = known.tests.get(label)
            if row is not None and other is not None and row.work.comparable(other.work):
                yield known, other

    def named(self) -> Iterator[tuple[str, Record]]:
        """The records with their names in reasons."""
        for kept in self.records:
            yield kept.name, kept.record
