"""What a verification tells besides its findings: values to compare with what was announced. Pure."""

from __future__ import annotations

from milabench_ng.plain import short
from milabench_ng.report.verification.checks.check_books import attempts_fact
from milabench_ng.report.verification.checks.check_proof import wheels_fact
from milabench_ng.report.verification.checks.clocks import gaps_fact
from milabench_ng.report.verification.evidence import Evidence

_LONGEST_NAME = 64


def facts(evidence: Evidence) -> dict[str, str]:
    """The facts of a result folder, by name."""
    manifest, claim = evidence.manifest, evidence.claim
    found = {
        "run": f"{manifest.run_id}, mnb {manifest.version}, {manifest.started_utc}",
        "node": f"{_name(manifest.inventory.hostname)}: {claim.hardware}",
        "profile": f"{manifest.plan.suite}, SHA-256 {evidence.profile.used}",
        "weights": _weights(evidence),
        "launches": f"{len(evidence.records)} records of {len(manifest.plan.launches)} planned launches",
        "attempts": attempts_fact(evidence),
        "gaps": gaps_fact(evidence),
        "wheels": wheels_fact(evidence),
        "ledger head": evidence.ledger.head if evidence.ledger else "none",
        "signed by": evidence.signer.principal or evidence.signer.problem or "nobody",
        "score": f"{claim.status or 'none'}",
    }
    if claim.per_device is not None and claim.per_node is not None:
        found["score"] += f": {claim.per_device:.6g} per device, {claim.per_node:.6g} per node ({claim.unit})"
    if evidence.strays:
        found["passed over"] = ", ".join(map(short, evidence.strays))
    return {key: short(text) for key, text in found.items() if text}


def _name(text: str) -> str:
    """A name of the sender's choice, too short to look like a line of the verdict."""
    made = " ".join(text.split())
    return made if len(made) <= _LONGEST_NAME else f"{made[:_LONGEST_NAME]}..."


def _weights(evidence: Evidence) -> str:
    used = evidence.weights.used
    if used is None:
        return "none"
    other = "" if evidence.shipped_weights in (None, used) else "; not the shipped weights"
    return f"SHA-256 {used}{other}"
