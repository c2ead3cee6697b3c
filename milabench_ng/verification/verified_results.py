"""Results that someone else measured: verified before anything is decided on them.

`mnb accept` and `mnb bids` read them here and nowhere else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import msgspec

from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered
from milabench_ng.model.plain import short
from milabench_ng.records.names import MANIFEST
from milabench_ng.verification.absurd import computing_from
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.opening import is_bundle, opened
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import gather, judged


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """What one side must fulfil."""

    rules: Rules = Rules()
    allowed_signers: Path | None = None
    """Who may sign: a file as in ssh-keygen(1)."""
    authorities: Path | None = None
    """Certificates of the time-stamping authorities whose stamps count (PEM)."""

    @property
    def any(self) -> bool:
        """Whether the buyer asked for anything beyond what is always checked."""
        return self.allowed_signers is not None or self.rules != Rules()

    def of_the_unsigned(self) -> Demands:
        """The same for what is part of something that is signed."""
        own = msgspec.structs.replace(self.rules, signed=False, signed_by=())
        return Demands(rules=own, authorities=self.authorities)

    def of_the_buyer(self) -> Demands:
        """The same for what the buyer measured: nobody signs or stamps it for him."""
        return Demands(rules=msgspec.structs.replace(self.rules, signed=False, signed_by=(), nonce=None, stamps=None))


class CheckedResults(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of results, and what verification found in them."""

    source: str
    summary: Summary
    verification: Verification | None
    """None for what holds no raw slices: a summary, or records without a manifest."""
    demanded: bool
    """Whether it must be verifiable."""
    traits: frozenset[str] = frozenset()
    """What no other run has, in words: its id, and the slices of its ranks."""

    @property
    def broken(self) -> bool:
        """Whether nothing may be decided on them."""
        return self.demanded if self.verification is None else not self.verification.passed

    @property
    def sentence(self) -> str:
        """The verdict, and whether the tenants were isolated."""
        loose = "" if self.summary.isolation in ("full", "") else "; NOT ISOLATED"
        if self.verification is None:
            return f"not verifiable: no slices to check the numbers against{loose}"
        return f"{self.verification.verdict}{loose}"

    @property
    def refusal(self) -> str:
        """Why nothing is decided on them, and what to do."""
        told = f"{short(self.source)}: {self.sentence}"
        if self.verification is None:
            return f"{told}; rules need a bundle or a result folder. Ask for one"
        return f"{told}. To see every reason, run `mnb verify` with the same rules"


def check_results(name: str, demands: Demands) -> CheckedResults:
    """Read and verify a bundle or a result folder; read a summary or the baseline of that name.

    Raises InputError for what is none of these.
    """
    with computing_from(name):
        return _check(name, demands)


def _check(name: str, demands: Demands) -> CheckedResults:
    path = Path(name)
    if not is_bundle(path) and not os.path.isfile(path / MANIFEST):
        summary = load_baseline(name)
        return CheckedResults(
            source=name, summary=summary, verification=None, demanded=demands.any, traits=frozenset(_run_ids(summary))
        )
    with opened(path) as there:
        evidence = gather(there, demands.rules, None, None, demands.allowed_signers, demands.authorities)
    return CheckedResults(
        source=name,
        summary=there.summary,
        verification=judged(evidence),
        demanded=demands.any,
        traits=frozenset((*_run_ids(there.summary), *_slices(evidence))),
    )


def _run_ids(summary: Summary) -> Iterator[str]:
    """A name for each run that made the records."""
    return (f"the run id {short(run)}" for run in summary.runs)


_CHANCE = 10
"""Fewer slices may be alike by chance, where a clock has a coarse tick."""


def _slices(evidence: Evidence) -> Iterator[str]:
    """A name for the slices of each rank, by their lengths: counts can be multiplied, and starts moved."""
    for _, record in evidence.named():
        for rank in record.mnb.ranks:
            if len(rank.slices) >= _CHANCE:
                lengths = msgspec.json.encode([row.length_s for row in rank.slices])
                yield f"slices of the same lengths (SHA-256 {hashlib.sha256(lengths).hexdigest()[:16]})"


def same_runs(results: Mapping[str, CheckedResults]) -> dict[str, str]:
    """Those, by name, that share a trait with another, and why: a run would be compared with itself."""
    owners = gathered((trait, name) for name, one in results.items() for trait in sorted(one.traits, reverse=True))
    found: dict[str, str] = {}
    for trait, names in owners.items():
        for name in names if len(names) > 1 else ():
            others = " and ".join(short(other) for other in names if other != name)
            same = f"{short(name)} is the same run as {others}: they have {trait}"
            found.setdefault(name, f"{same}. Each needs its own measurement")
    return found


def require_different(results: Mapping[str, CheckedResults]) -> None:
    """Raise InputError if two of them, by name, are of the same run."""
    for why in reversed(same_runs(results).values()):
        raise InputError(why)
    for (name, one), (other, later) in combinations(results.items(), 2):
        if one.summary.is_of_the_run(later.summary):
            same = f"{short(other)} is the same run as {short(name)}: all of their rates are equal"
            raise InputError(f"{same}. Each needs its own measurement")


def require_sound(results: CheckedResults) -> CheckedResults:
    """``results``. Raises InputError if nothing may be decided on them."""
    if results.broken:
        raise InputError(results.refusal)
    return results
