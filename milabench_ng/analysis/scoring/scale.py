"""What the score of a suite rests on, as one value: its weights, their groups, and the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from milabench_ng.analysis.scoring.reference import Reference, load_reference
from milabench_ng.analysis.scoring.weights import (
    Groups,
    Weights,
    WeightsFile,
    find_weights,
    read_weights,
    weighed_suites,
)
from milabench_ng.analysis.summary.summary import Summary, suite_of_row
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import find


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How a suite is scored."""

    file: Path | None = None
    """None if the suite has no weights."""
    weights: Weights | None = None
    reference: Reference | None = None
    groups: Groups = MappingProxyType({})


def load_scale(weights: WeightsFile) -> Scale:
    return Scale(file=weights.path, weights=weights.weights, reference=load_reference(weights), groups=weights.groups)


def shipped_scale(suite: str) -> Scale:
    """The scale of a suite without a file of the user's."""
    weights = find_weights(suite)
    return Scale() if weights is None else load_scale(weights)


def files_of(path: Path | None, summary: Summary) -> dict[str, WeightsFile | None]:
    """The weights file of each suite of ``summary``: of several, ``path`` holds for those that it weighs.

    None: what is shipped holds. Raises InputError if ``path`` weighs none of the suites, or tests that they have not.
    """
    if path is None:
        return dict.fromkeys(summary.known_suites)
    file = read_weights(path, min(summary.known_suites))
    weighed = weighed_suites(file, summary.known_suites, frozenset(_tests_of(summary, file)))
    return {suite: file if suite in weighed else None for suite in summary.known_suites}


def scales_of(files: Mapping[str, WeightsFile | None], summary: Summary) -> dict[str, Scale]:
    """The scales in the ``files`` of the suites of ``summary``: of several, each has the weights of its own tests."""
    read = {file.path: load_scale(file) for file in files.values() if file is not None}
    whole = {suite: shipped_scale(suite) if file is None else read[file.path] for suite, file in files.items()}
    return {suite: _own(scale, suite) for suite, scale in whole.items()} if summary.suites else whole


def load_scales(path: Path | None, summary: Summary) -> dict[str, Scale]:
    """The scale of each suite of ``summary``, from the weights file ``path`` or what is shipped."""
    return scales_of(files_of(path, summary), summary)


def _tests_of(summary: Summary, file: WeightsFile) -> Iterator[str]:
    """What the suites of ``summary`` have: by its plan and their profiles, or without either as ``file`` says."""
    yield from (*summary.tests, *summary.omitted, *summary.unplanned)
    for suite in summary.known_suites:
        path = find("profiles", suite)
        if path is not None:
            profile = read_profile(path)
            yield from map(profile.id_of, profile.tests)
        elif not summary.has_plan:
            yield from (label for label in file.labels if suite_of_row(label) == suite)


def _own(scale: Scale, suite: str) -> Scale:
    weights = {label: weight for label, weight in (scale.weights or {}).items() if suite_of_row(label) == suite}
    groups = {label: group for label, group in scale.groups.items() if label in weights}
    return msgspec.structs.replace(scale, weights=weights or None, groups=groups)
