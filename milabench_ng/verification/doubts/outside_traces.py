"""Launches outside the reference traces: other libraries may compute a little differently."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.records.marks import MarkKind
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_OF_TRACES: frozenset[MarkKind] = frozenset(
    {
        "loss outside the reference",
        "gradient norm outside the reference",
        "parameters outside the reference",
        "not recorded",
        "nothing learned",
    }
)
"""Marks that a report makes by the reference traces."""


def _outside(evidence: Evidence) -> Iterator[str]:
    for label, row in evidence.summary.tests.items():
        yield from (f"{label}: {mark.text}" for mark in row.marks if mark.kind in _OF_TRACES)


DOUBT = Doubt(
    name="outside-traces",
    title="losses, gradients or parameters outside the reference",
    ask="ask which versions of torch and cuDNN ran, and compare with other bids of the same GPU",
    look=_outside,
)
