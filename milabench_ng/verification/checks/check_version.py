"""The rule on versions: who verifies must know all that was written, and a version writes all that it can.

A record of an older version is judged by what that version wrote. So nobody may call new results old: a tender demands
a least version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from milabench_ng import __version__
from milabench_ng.records.ledger import LEDGER_SCHEMA, Chain, Started
from milabench_ng.records.origin import release
from milabench_ng.verification.checks.missing_evidence import left_out
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, judged, unknown


def version(evidence: Evidence) -> Finding:
    """The run is of no newer version than this and of none older than demanded, and tells all that it can."""
    why = older(evidence.manifest.version, evidence.ledger)
    reasons = [*_newer(evidence), *_too_old(evidence, why), *(() if why else left_out(evidence))]
    undeclared = [one.workload for one in evidence.manifest.plan.launches if one.workload not in evidence.declared]
    if undeclared and not reasons and why is None:
        return unknown(f"run.json does not say what the workload {undeclared[0]} declares: its items cannot be checked")
    if reasons or why is None:
        return judged(reasons)
    return unknown(
        f"older version: {why}. Evidence that only later versions write is not required (least_version requires it)"
    )


def _newer(evidence: Evidence) -> Iterator[str]:
    made = evidence.manifest.version
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", made):
        yield f"{made!r} is no released version: use one whose number has digits and dots only"
    if release(made) > release(evidence.version):
        other = "that version" if evidence.rules.closed else "that version or a later one"
        yield f"made with mnb {made}, this is {evidence.version}: verify with {other}"


def older(made: str, ledger: Chain) -> str | None:
    """Why a run of version ``made`` may lack what this version writes; None if it may not."""
    if release(made) < release(__version__):
        return f"made with mnb {made}, this is {__version__}"
    schema = next((event.schema for event in ledger.events if isinstance(event, Started)), LEDGER_SCHEMA)
    if schema < LEDGER_SCHEMA:
        return f"its ledger is of schema {schema}, that of mnb {__version__} of {LEDGER_SCHEMA}"
    return None


def _too_old(evidence: Evidence, why: str | None) -> Iterator[str]:
    least, made = evidence.rules.least_version, evidence.manifest.version
    if least is not None and release(made) < release(least):
        yield f"made with mnb {made}, but the rules require {least} or later"
    elif least is not None and why is not None and release(least) >= release(evidence.version):
        yield f"older version: {why}"
