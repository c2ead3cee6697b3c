"""Weights: how much each test counts in the score. A JSON file ``{"suite.test": {"weight": 8}}``, as in 2020."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.report.folder import progression_steps
from milabench_ng.shipped import find

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
        raw = msgspec.json.decode(chosen.read_bytes(), type=dict[str, _Weight])
    except OSError as error:
        raise InputError(f"weights {chosen}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f'weights {chosen}: {error}; the form is {{"{suite}.vae": {{"weight": 8}}}}') from None
    for label, entry in raw.items():
        if not (entry.weight >= 0 and math.isfinite(entry.weight)):
            raise InputError(f"weights {chosen}: the weight of {label} is {entry.weight}; it must be at least 0")
    weights = {label: entry.weight for label, entry in raw.items() if entry.weight > 0}
    if not weights:
        raise InputError(f"weights {chosen}: no test has a weight above 0")
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
