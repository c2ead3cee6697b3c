"""What a verification tells besides its findings: values to compare with what was announced. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from milabench_ng.analysis.scoring.reference import unit_told
from milabench_ng.analysis.summary.deviations import DEVIATIONS
from milabench_ng.analysis.summary.marked import Marked, count_marks
from milabench_ng.model.plain import short
from milabench_ng.model.units import counted, four_digits
from milabench_ng.records.ledger import NOT_TRIED
from milabench_ng.verification.bundle import ClaimedScore
from milabench_ng.verification.checks.check_ledger import attempts_fact
from milabench_ng.verification.checks.check_plan import tests_fact
from milabench_ng.verification.checks.check_proof import libraries_fact, ran_commit, twins_fact
from milabench_ng.verification.checks.clocks import gaps_fact
from milabench_ng.verification.doubts.shipped_rate import shipped_fact
from milabench_ng.verification.evidence import Evidence, Pinned

_LONGEST_NAME = 64


def facts(evidence: Evidence) -> dict[str, str]:
    """The facts of a result folder, by name."""
    manifest, claim = evidence.manifest, evidence.claim
    found = {
        "run": f"{manifest.run_id}, mnb {manifest.version}, {manifest.started_utc}",
        "commit": ran_commit(evidence) or "",
        "node": f"{_name(manifest.inventory.hostname)}: {claim.hardware}",
        "profile": f"{manifest.plan.suite}, SHA-256 {evidence.profile.used}{_other(evidence)}",
        "isolation": _isolation(evidence),
        "weights": _each({suite: _weights(pinned) for suite, pinned in evidence.weights.items()}),
        "departures": "; ".join(each.counted(len(evidence.summary.tests)) for each in _departures(evidence)),
        "shipped": shipped_fact(evidence),
        "tests": tests_fact(manifest.plan),
        "launches": _launches(evidence),
        "attempts": attempts_fact(evidence),
        "failures": evidence.failures.text,
        "gaps": gaps_fact(evidence),
        "libraries": libraries_fact(evidence),
        "twins": twins_fact(evidence),
        "ledger head": evidence.ledger.head if evidence.has_ledger else "none",
        "signed by": evidence.signer.principal or f"({evidence.signer.problem or 'unsigned'})",
        "score": _each({suite: _score(one, evidence.weights.get(suite)) for suite, one in claim.scores.items()}),
    }
    if evidence.strays:
        found["passed over"] = ", ".join(map(short, evidence.strays))
    return {key: short(text) for key, text in found.items() if text}


def _name(text: str) -> str:
    """A name of the sender's choice, too short to look like a line of the verdict."""
    made = " ".join(text.split())
    return made if len(made) <= _LONGEST_NAME else f"{made[:_LONGEST_NAME]}..."


def _other(evidence: Evidence) -> str:
    suite, known = evidence.manifest.plan.suite, evidence.shipped_profile
    if known is not None:
        return "" if known == suite else f"; the shipped profile {known} under another name"
    return "" if evidence.profile.shipped is None else "; not the shipped profile"


def _isolation(evidence: Evidence) -> str:
    weakest = evidence.summary.isolation
    return weakest if weakest in ("full", "") else f"{weakest}: NOT ISOLATED"


def _launches(evidence: Evidence) -> str:
    """A launch that was interrupted, or measured again beside its neighbors, has several records."""
    records = [kept.record for kept in evidence.records]
    there = {
        (one.mnb.label, one.job_id, one.mnb.launch.known_role, one.mnb.batch)
        for one in records
        if one.mnb.failure is None or one.mnb.failure.cause not in NOT_TRIED
    }
    more = f", in {len(records)} records" if len(records) > len(there) else ""
    return f"{len(there)} of {counted(len(evidence.asked.launches), 'planned launch')}{more}"


def _departures(evidence: Evidence) -> list[Marked]:
    """What the run itself chose: devices shared or left out, data, order, company."""
    return [each for each in count_marks(evidence.summary.tests) if each.kind in DEVIATIONS]


def _each(told: Mapping[str, str]) -> str:
    """What is told of each suite; the name is left out if there is one."""
    return "; ".join(f"{suite}: {text}" for suite, text in told.items()) if len(told) > 1 else "".join(told.values())


def _score(claimed: ClaimedScore, pinned: Pinned | None) -> str:
    if claimed.per_device is None or claimed.per_node is None:
        return claimed.status or "none"
    if claimed.status == "partial":
        return "partial: no score, for only some tests ran"
    points = f"{four_digits(claimed.per_device)} per device, {four_digits(claimed.per_node)} per node"
    other = ", not with the shipped weights" if pinned and pinned.shipped not in (None, pinned.used) else ""
    return f"{claimed.status}: {points} ({unit_told(claimed.unit)}){other}"


def _weights(pinned: Pinned) -> str:
    if pinned.used is None:
        return "none"
    other = "" if pinned.shipped in (None, pinned.used) else "; not the shipped weights"
    if pinned.own:
        other = "; the sender's own, because none are shipped"
    return f"SHA-256 {pinned.used}{other}"
