"""The rule on versions: who verifies must know all that was written, and a version writes all that it can.

A record of an older version is judged by what that version wrote. So nobody may call new results old: a tender demands
a least version.
"""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.records.ledger import LEDGER_SCHEMA, Started
from milabench_ng.records.origin import release
from milabench_ng.report.verification.checks.left_out import left_out
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.report.verification.findings import Finding, judged, unknown


def version(evidence: Evidence) -> Finding:
    """The run is of no newer version than this and of none older than demanded, and tells all that it can."""
    older = _older(evidence)
    reasons = [*_newer(evidence), *_too_old(evidence, older), *(() if older else left_out(evidence))]
    if reasons or older is None:
        return judged(reasons)
    return unknown(f"{older}; what only later ones write is not asked (least_version demands it)")


def _newer(evidence: Evidence) -> Iterator[str]:
    made = evidence.manifest.version
    if release(made) > release(evidence.version):
        yield f"made with mnb {made}, this is {evidence.version}: verify with that version or a later one"


def _older(evidence: Evidence) -> str | None:
    """Why the run may lack what this version writes; None if it may not."""
    made, schema = evidence.manifest.version, _ledger_schema(evidence)
    if release(made) < release(evidence.version):
        return f"older version: made with mnb {made}, this is {evidence.version}"
    if schema is not None and schema < LEDGER_SCHEMA:
        return f"older version: its ledger is of schema {schema}, that of mnb {evidence.version} of {LEDGER_SCHEMA}"
    return None


def _ledger_schema(evidence: Evidence) -> int | None:
    events = evidence.ledger.events if evidence.ledger else ()
    return next((event.schema for event in events if isinstance(event, Started)), None)


def _too_old(evidence: Evidence, older: str | None) -> Iterator[str]:
    least, made = evidence.rules.least_version, evidence.manifest.version
    if least is not None and release(made) < release(least):
        yield f"made with mnb {made}, {least} or later is demanded"
    elif least is not None and older is not None and release(least) >= release(evidence.version):
        yield older
