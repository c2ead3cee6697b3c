"""What a report rests on that ``mnb`` does not ship: other weights, a profile that only has a shipped one's name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from milabench_ng.files import read_content
from milabench_ng.plain import plain
from milabench_ng.report.scoring.weights import Weights, load_weights
from milabench_ng.report.summary.summary import Summary
from milabench_ng.shipped import find


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Empty where all is as shipped."""

    weights: str = ""
    """The file of the weights, where they are others than those shipped for the suite."""
    profiles: tuple[str, ...] = ()
    """SHA-256 of those that ran under the name of a shipped one and are others."""


def choices(summary: Summary, weights: Weights | None, file: Path | None) -> Choices:
    """Of a report on ``summary`` with ``weights`` from ``file``; None where no file was given."""
    foreign = file is not None and weights != load_weights(None, summary.suite)
    return Choices(weights=plain(file) if foreign else "", profiles=_unshipped(summary))


def _unshipped(summary: Summary) -> tuple[str, ...]:
    shipped = find("profiles", summary.suite)
    if shipped is None:
        return ()
    known = hashlib.sha256(read_content(shipped)).hexdigest()
    return tuple(sha256 for sha256 in summary.profile_sha256 if sha256 != known)
