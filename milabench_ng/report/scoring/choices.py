"""Inputs of a report that ``mnb`` does not ship: other weights, or a profile that only shares a shipped one's name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from milabench_ng.files import read_content
from milabench_ng.plain import plain
from milabench_ng.report.scoring.reference import load_reference
from milabench_ng.report.scoring.weights import Weights, load_weights
from milabench_ng.report.summary.summary import Summary
from milabench_ng.shipped import find


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The unshipped inputs; empty if everything is as shipped."""

    weights: str = ""
    """The weights file, if its weights are not those shipped for the suite."""
    profiles: tuple[str, ...] = ()
    """SHA-256 of profiles that ran under the name of a shipped one but differ from it."""


def choices(summary: Summary, weights: Weights | None, file: Path | None) -> Choices:
    """The choices of a report on ``summary`` with ``weights`` from ``file``, which is None if no file was given."""
    shipped = load_weights(None, summary.suite), load_reference(None, summary.suite)
    foreign = file is not None and (weights, load_reference(file, summary.suite)) != shipped
    return Choices(weights=plain(file) if foreign else "", profiles=_unshipped(summary))


def _unshipped(summary: Summary) -> tuple[str, ...]:
    shipped = find("profiles", summary.suite)
    if shipped is None:
        return ()
    known = hashlib.sha256(read_content(shipped)).hexdigest()
    return tuple(sha256 for sha256 in summary.profile_sha256 if sha256 != known)
