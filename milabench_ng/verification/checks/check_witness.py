"""Rules that no file can prove: a person must have been a witness, and the evaluator's rules say who and when."""

from __future__ import annotations

from collections.abc import Callable

from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, unknown


def witnessed(rule: str) -> Callable[[Evidence], Finding]:
    """The check of a rule that a person vouches for."""

    def check(evidence: Evidence) -> Finding:
        said = evidence.rules.witnessed.get(rule, "").strip()
        return Finding("pass", (f"seen by {said}",)) if said else unknown("no witness is named")

    return check
