"""The rule on the conditions under which launches ran."""

from __future__ import annotations

from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged


def conditions(evidence: Evidence) -> Finding:
    """No launch had a condition beyond its limit, of the kinds that are refused."""
    refused = evidence.rules.conditions_refused
    if not refused:
        return OFF
    return judged(
        [
            f"{label}: {one.text}"
            for label, row in evidence.summary.tests.items()
            for one in row.conditions
            if one.beyond and one.kind in refused
        ]
    )
