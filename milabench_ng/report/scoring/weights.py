"""Weights: how much each test contributes to the score. A JSON file ``{"suite.test": {"weight": 8}}``, as in 2020.

With ``"*": {"reference": NAME, "sha256": ...}`` the score is relative to a stored result (`reference`). ``"group"``
beside a weight puts the test into a group, which has a sub-score.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.files import convert_json, read_json
from milabench_ng.plain import plain, short
from milabench_ng.report.summary.summary import Summary, progression_steps
from milabench_ng.shipped import find

Weights = Mapping[str, float]


HEADER = "*"
"""The key of what concerns the whole file; a test's label has a dot."""


class WeightsHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What concerns the whole file."""

    FORM: ClassVar[str] = 'the form is {"*": {"reference": "unet3d-h200", "sha256": "..."}}'

    reference: str
    """A shipped baseline, or a file next to the weights, without ``.json``."""
    sha256: str
    """Of its file, so that nothing but the weights decides what a score means."""


Groups = Mapping[str, str]
"""The group of each test that is in one, by label: each group has a sub-score."""


class _Weight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=60)] | None = None


def weights_file(path: Path | None, suite: str) -> Path | None:
    """The file ``path``, else the shipped one of ``suite``; None if there is none."""
    return path or find("weights", suite)


def load_weights(path: Path | None, suite: str) -> Weights | None:
    """The weights above 0 in the file ``path``, else in the shipped one of ``suite``; None if there is none."""
    chosen = weights_file(path, suite)
    if chosen is None:
        return None
    weights = {label: entry.weight for label, entry in _entries(chosen, suite).items() if entry.weight > 0}
    if not weights:
        raise InputError(f"weights {plain(chosen)}: no test has a weight above 0")
    return weights


def load_groups(path: Path | None, suite: str) -> Groups:
    """The groups of the weighted tests in the same file; empty if it names none."""
    chosen = weights_file(path, suite)
    found = {} if chosen is None else _entries(chosen, suite)
    return {label: entry.group for label, entry in found.items() if entry.group is not None and entry.weight > 0}


def _entries(chosen: Path, suite: str) -> dict[str, _Weight]:
    where = f"weights {plain(chosen)}"
    advice = f'the form is {{"{short(suite)}.vae": {{"weight": 8}}}}'
    raw = convert_json(read_json(chosen), dict[str, Any], where, advice)
    return {
        label: convert_json(raw[label], _Weight, f"{where}: {short(label)}", advice) for label in raw if label != HEADER
    }


def spread_unplanned(weights: Weights, devices: int) -> dict[str, float]:
    """The effective weights on a node with ``devices`` devices: steps that need more are not planned."""
    steps = progression_steps(list(weights))
    return weights_over(weights, [label for label in weights if steps.get(label, 0) <= devices])


def planned_weights(weights: Weights, summary: Summary) -> dict[str, float]:
    """The effective weights on the node of ``summary``, without the tests that its plan could not have."""
    spread = spread_unplanned(weights, summary.devices)
    return {label: weight for label, weight in spread.items() if label not in summary.unplanned}


def weights_over(weights: Weights, labels: Container[str]) -> dict[str, float]:
    """The weights of the tests in ``labels``.

    The weight of a progression's step that is not there is divided equally among its steps that are.
    """
    steps = progression_steps(list(weights))
    effective = {label: weight for label, weight in weights.items() if label in labels}
    for label in steps:
        if label not in effective:
            base = label.rpartition(".")[0]
            left = [other for other in effective if other in steps and other.rpartition(".")[0] == base]
            for other in left:
                effective[other] += weights[label] / len(left)
    return effective
