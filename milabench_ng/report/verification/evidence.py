"""All that the rules look at, as one value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from milabench_ng.records.ledger import Chain
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.reading import Problem
from milabench_ng.records.record import Record
from milabench_ng.report.summary.summary import Summary
from milabench_ng.report.verification.bundle import Claim, FileSum, PackingList
from milabench_ng.report.verification.rules import Rules
from milabench_ng.report.verification.signing import Signer


class StoredRecord(msgspec.Struct, frozen=True):
    """A record, and the name and SHA-256 of its file."""

    file: str
    sha256: str
    record: Record

    @property
    def name(self) -> str:
        """As reasons call it: ``standard.vae J0.1``."""
        return f"{self.record.mnb.label} J{self.record.job_id}"


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The SHA-256 of a file: that of the one that was used, and the one that is demanded. None for none."""

    used: str | None
    demanded: str | None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A result folder, read whole, with the demands on it and what was recomputed from its slices."""

    rules: Rules
    packing: PackingList | None
    """The packing list of a bundle; None of a plain folder."""
    files: dict[str, FileSum]
    """Of all files that are there, by their names in a bundle."""
    foreign: tuple[str, ...]
    """Files that belong to no run."""
    signer: Signer
    going_on: bool
    manifest: Manifest
    profile: Pinned
    weights: Pinned
    records: tuple[StoredRecord, ...]
    ledger: Chain | None
    """None where there is none."""
    unreadable: tuple[Problem, ...]
    summary: Summary
    claim: Claim
    """What a report prints, recomputed."""
    sources: dict[str, str | None]
    """SHA-256 of the workloads' source files in this installation, by origin; None where it has none."""
    version: str
    """Of this installation."""

    @property
    def measured(self) -> tuple[StoredRecord, ...]:
        """The records of launches that are there for their own result, and not as company."""
        return tuple(kept for kept in self.records if kept.record.mnb.launch.measured)

    @property
    def good(self) -> tuple[StoredRecord, ...]:
        """The records of launches that did not fail."""
        return tuple(kept for kept in self.records if kept.record.success)

    def batches(self) -> dict[tuple[int, str], list[StoredRecord]]:
        """The records by batch and the moment (UTC) at which it was begun: those that worked at the same time."""
        found: dict[tuple[int, str], list[StoredRecord]] = defaultdict(list)
        for kept in self.records:
            found[kept.record.mnb.batch, kept.record.mnb.started_utc].append(kept)
        return found

    def named(self) -> Iterator[tuple[str, Record]]:
        """The records with the name that reasons give them."""
        for kept in self.records:
            yield kept.name, kept.record
