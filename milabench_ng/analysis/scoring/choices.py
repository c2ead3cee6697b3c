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
    packed: tuple[str, ...] = ()
    """Suites for which its bundle has other weights than those of the report."""
    profiles: tuple[str, ...] = ()
    """SHA-256 of profiles that ran under the name of a shipped one but differ from it."""


def choices(summary: Summary, scales: Mapping[str, Scale], file: Path | None, packed: Mapping[str, Path]) -> Choices:
    """The choices of a report on ``summary``, whose suites have ``scales``.

    ``file`` is None if none was given; ``packed``: the files of weights that came with its bundle, by suite.
    """
    foreign = file is not None and any(_unlike(scale, shipped_scale(suite)) for suite, scale in scales.items())
    used = {suite: scale.file and read_content(scale.file) for suite, scale in scales.items()}
    others = tuple(suite for suite, path in packed.items() if read_content(path) != used[suite])
    return Choices(weights=plain(file) if foreign else "", packed=others, profiles=unshipped_profiles(summary))


def _unlike(scale: Scale, shipped: Scale) -> bool:
    return (scale.weights, scale.reference) != (shipped.weights, shipped.reference)


def unshipped_profiles(summary: Summary) -> tuple[str, ...]:
    """The SHA-256 of profiles that ran under a shipped one's name and differ from it; empty for another name."""
    shipped = find("profiles", summary.suite)
    if shipped is None:
        return ()
    known = hashlib.sha256(read_content(shipped)).hexdigest()
    return tuple(sha256 for sha256 in summary.profile_sha256 if sha256 != known)
