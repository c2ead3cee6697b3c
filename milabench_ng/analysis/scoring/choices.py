"""Inputs of a report that ``mnb`` does not ship: other weights, or a profile that only shares a shipped one's name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.analysis.scoring.scale import Scale, shipped_scale
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.files import read_content
from milabench_ng.model.plain import plain
from milabench_ng.model.shipped import find


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The unshipped inputs; empty if everything is as shipped."""

    weights: str = ""
    """The weights file, if its weights are not those shipped for the suite."""
    profiles: tuple[str, ...] = ()
    """SHA-256 of profiles that ran under the name of a shipped one but differ from it."""


def choices(summary: Summary, scales: Mapping[str, Scale], file: Path | None) -> Choices:
    """The choices of a report on ``summary``, whose suites have ``scales``; ``file`` is None if none was given."""
    foreign = file is not None and any(_unlike(scale, shipped_scale(suite)) for suite, scale in scales.items())
    return Choices(weights=plain(file) if foreign else "", profiles=_unshipped(summary))


def _unlike(scale: Scale, shipped: Scale) -> bool:
    return (scale.weights, scale.reference) != (shipped.weights, shipped.reference)


def _unshipped(summary: Summary) -> tuple[str, ...]:
    shipped = find("profiles", summary.suite)
    if shipped is None:
        return ()
    known = hashlib.sha256(read_content(shipped)).hexdigest()
    return tuple(sha256 for sha256 in summary.profile_sha256 if sha256 != known)
