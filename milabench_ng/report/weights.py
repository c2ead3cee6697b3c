"""Weights: how much each test counts in the score. A JSON file ``{"suite.test": {"weight": 8}}``, as in 2020."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.files import read_json
from milabench_ng.plain import plain, short
from milabench_ng.report.summary import progression_steps
from milabench_ng.shipped import find

LARGEST = 1e6

Weights = Mapping[str, float]


class _Weight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weight: float


def weights_file(path: Path | None, suite: str) -> Path | None:
    """The file ``path``, else the shipped one of ``suite``; None where there is none."""
    return path or find("weights", suite)


def load_weights(path: Path | None, suite: str) -> Weights | None:
    """The weights above 0 in the file ``path``, else in the shipped one of ``suite``; None where there is none."""
    chosen = weights_file(path, suite)
    if chosen is None:
        return None
    try:
        raw = msgspec.convert(read_json(chosen), dict[str, _Weight])
    except msgspec.ValidationError as error:
        raise InputError(
            f'weights {plain(chosen)}: {short(error)}; the form is {{"{short(suite)}.vae": {{"weight": 8}}}}'
        ) from None
    for label, entry in raw.items():
        if not 0 <= entry.weight <= LARGEST:
            raise InputError(
                f"weights {plain(chosen)}: the weight of {short(label)} is {entry.weight}; "
                f"it must be from 0 to {LARGEST:,.0f}"
            )
    weights = {label: entry.weight for label, entry in raw.items() if entry.weight > 0}
    if not weights:
        raise InputError(f"weights {plain(chosen)}: no test has a weight above 0")
    return weights


def spread_unplanned(weights: Weights, devices: int) -> dict[str, float]:
    """The weights as they count on a node of ``devices`` devices.

    A step K of a progression beyond the node's devices is not planned: its weight goes to the steps of the same
    progression that are, in equal parts.
    """
    steps = progression_steps(list(weights))
    effective = {label: weight for label, weight in weights.items() if steps.get(label, 0) <= devices}
    for label, step in steps.items():
        if step > devices:
            base = label.rpartition(".")[0]
            planned = [other for other in effective if other in steps and other.rpartition(".")[0] == base]
            for other in planned:
                effective[other] += weights[label] / len(planned)
    return effective
