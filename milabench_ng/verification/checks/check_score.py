"""The rule on the score: it is complete and precise enough to decide on."""

from __future__ import annotations

import math

from milabench_ng.verification.bundle import ClaimedScore
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged


def margin(evidence: Evidence) -> Finding:
    """The score of each suite is complete, and the half width of its interval is within the margin.

    Of several suites, one whose weights are neither demanded nor shipped has no score to decide on.
    """
    demanded, claimed_scores = evidence.rules.margin, evidence.claim.scores
    if demanded is None:
        return OFF
    weighed = {suite for suite, pinned in evidence.weights.items() if pinned.demanded or pinned.shipped}
    scores = {suite: claimed for suite, claimed in claimed_scores.items() if suite in weighed} or claimed_scores
    return judged(
        [
            f"the score{f' of {suite}' if len(claimed_scores) > 1 else ''} {why}"
            for suite, claimed in scores.items()
            if (why := precise_enough(claimed, demanded))
        ]
    )


def precise_enough(claimed: ClaimedScore, demanded: float) -> str:
    """Why a score is not known well enough; empty if it is."""
    if claimed.status != "complete" or claimed.per_device is None:
        return f"is {claimed.status or f'none: {claimed.why}'}"
    if claimed.low is None or claimed.high is None:
        return f"has no interval: {claimed.why}"
    half = math.sqrt(claimed.high / claimed.low) - 1
    return f"is known to ±{half:.1%}, but the rules require ±{demanded:.1%}" if half > demanded else ""
