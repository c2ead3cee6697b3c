"""Weights: how much each test contributes to the score. A JSON file ``{"suite.test": {"weight": 8}}``, as in 2020.

With ``"*": {"reference": NAME, "sha256": ...}`` the score is relative to a stored result (`reference`). ``"group"``
beside a weight puts the test into a group, which has a sub-score.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from milabench_ng.analysis.summary.summary import Summary, progression_steps, suite_of_row
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import convert_json, read_json
from milabench_ng.model.known_files import refuse_other
from milabench_ng.model.plain import plain, short
from milabench_ng.model.shipped import find
from milabench_ng.model.similar import did_you_mean

Weights = Mapping[str, float]


HEADER = "*"
"""The key of what concerns the whole file; a test's label has a dot."""


class WeightsHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What concerns the whole file."""

    FORM: ClassVar[str] = 'expected {"*": {"reference": "unet3d-h200", "sha256": "..."}}'

    reference: str
    """A shipped baseline, or a file next to the weights, without ``.json``."""
    sha256: str
    """Of its file, so that nothing but the weights decides what a score means."""


Groups = Mapping[str, str]
"""The group of each test that is in one, by label: each group has a sub-score."""


class _Weight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=60)] | None = None


class WeightsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A weights file as read."""

    path: Path
    labels: tuple[str, ...]
    """All tests in it."""
    weights: Weights
    """Those above 0: at least one."""
    groups: Groups
    """Of the weighted tests."""
    header: WeightsHeader | None = None


def read_weights(path: Path, suite: str) -> WeightsFile:
    """The weights file ``path``; ``suite`` is for advice. Raises InputError if it is none."""
    where = f"weights {plain(path)}"
    advice = f'expected {{"{short(suite)}.vae": {{"weight": 8}}}}'
    given = read_json(path)
    refuse_other(given, "weights", where)
    raw = convert_json(given, dict[str, Any], where, advice)
    entries = {
        label: convert_json(raw[label], _Weight, f"{where}: {short(label)}", advice) for label in raw if label != HEADER
    }
    weighted = {label: entry for label, entry in entries.items() if entry.weight > 0}
    if not weighted:
        raise InputError(f"{where}: no test has a weight above 0. Give one to at least one test")
    header = (
        convert_json(raw[HEADER], WeightsHeader, f"{where}: '{HEADER}'", WeightsHeader.FORM) if HEADER in raw else None
    )
    return WeightsFile(
        path=path,
        labels=tuple(entries),
        weights={label: entry.weight for label, entry in weighted.items()},
        groups={label: entry.group for label, entry in weighted.items() if entry.group is not None},
        header=header,
    )


def find_weights(suite: str) -> WeightsFile | None:
    """The shipped weights of ``suite``; None if there are none."""
    path = find("weights", suite)
    return None if path is None else read_weights(path, suite)


def weighed_suites(file: WeightsFile, suites: Collection[str], known: Collection[str]) -> frozenset[str]:
    """Those of the ``suites`` that ``file`` weighs tests of.

    ``known``: all tests that it may weigh, also of suites that a run left out; of a progression, any step is one.
    Raises InputError if it weighs none of the suites, or another test.
    """
    where = f"weights {plain(file.path)}"
    of = {label: suite_of_row(label) for label in file.labels}
    asked = f"the suite{' is' if len(suites) == 1 else 's are'} {' and '.join(map(short, sorted(suites)))}"
    there = {*suites, *map(suite_of_row, known)}
    tests = {_test_of(label) for label in known}
    for label in file.labels:
        why = asked if of[label] not in there else "" if _test_of(label) in tests else "no such test"
        if why:
            advice = f"correct its name, or leave it out{did_you_mean(label, known)}"
            raise InputError(f"{where}: {short(label)}: {why}; {advice}")
    found = frozenset(of.values()) & frozenset(suites)
    if not found:
        raise InputError(f"{where}: {asked}, but the file has no weights for its tests. Name a file that has")
    return found


def _test_of(label: str) -> str:
    """The test that the row ``label`` is of."""
    return label.rpartition(".")[0] if progression_steps([label]) else label


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
