"""The rule on the score: it is complete and precise enough to decide on."""

from __future__ import annotations

import math

from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.report.verification.findings import OFF, Finding, judged


def margin(evidence: Evidence) -> Finding:
    """The score is complete, and the half width of its interval is within the margin."""
    demanded, claim = evidence.rules.margin, evidence.claim
    if demanded is None:
        return OFF
    if claim.status != "complete" or claim.per_device is None:
        return judged([f"the score is {claim.status or f'none: {claim.why}'}"])
    if claim.low is None or claim.high is None:
        return judged([f"the score has no interval: {claim.why}"])
    half = math.sqrt(claim.high / claim.low) - 1
    return judged([f"the score is known to +-{half:.1%}, +-{demanded:.1%} is demanded"] if half > demanded else [])
