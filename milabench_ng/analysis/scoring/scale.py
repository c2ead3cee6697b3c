"""What the score of a suite rests on, as one value: its weights, their groups, and the reference."""

from __future__ import annotations

from collections.abc import Mapping
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

    None: what is shipped holds. Raises InputError if ``path`` weighs none of the suites, or tests of others.
    """
    if path is None:
        return dict.fromkeys(summary.known_suites)
    file = read_weights(path, min(summary.known_suites))
    left_out = {suite_of_row(label) for label in (*summary.omitted, *summary.unplanned)}
    weighed = weighed_suites(file, summary.known_suites, left_out)
    return {suite: file if suite in weighed else None for suite in summary.known_suites}


def scales_of(files: Mapping[str, WeightsFile | None], summary: Summary) -> dict[str, Scale]:
    """The scales in the ``files`` of the suites of ``summary``: of several, each has the weights of its own tests."""
    read = {file.path: load_scale(file) for file in files.values() if file is not None}
    whole = {suite: shipped_scale(suite) if file is None else read[file.path] for suite, file in files.items()}
    return {suite: _own(scale, suite) for suite, scale in whole.items()} if summary.suites else whole


def load_scales(path: Path | None, summary: Summary) -> dict[str, Scale]:
    """The scale of each suite of ``summary``, from the weights file ``path`` or what is shipped."""
    return scales_of(files_of(path, summary), summary)


def _own(scale: Scale, suite: str) -> Scale:
    weights = {label: weight for label, weight in (scale.weights or {}).items() if suite_of_row(label) == suite}
    groups = {label: group for label, group in scale.groups.items() if label in weights}
    return msgspec.structs.replace(scale, weights=weights or None, groups=groups)
