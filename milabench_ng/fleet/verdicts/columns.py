"""What a node is judged by: one number a question, each relative to the fleet. Pure.

Tests of one kind share the node and the day: a cooler room or a better chip moves all GPU-bound tests together. So
there are three sorts of questions. Is the node slow in all tests of a kind? The median over these tests answers it. Is
it slow in one test? Its distance from the node's other tests of the kind answers that, in which the node and the day
cancel. Is one device slow? Its distance from the other devices of its node answers that, in which both cancel, too.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

import msgspec
import numpy as np

from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.fleet.verdicts.measured import WORDS, Array, Kind, Measured, average, middle

FEWEST_NODES = 4
"""Of fewer nodes, nobody can say which is unusual."""

Scope = Literal["all", "test", "device"]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One question."""

    scope: Scope
    kind: Kind
    test: str | None = None
    device: str | None = None

    @property
    def words(self) -> str:
        """In what a node is slow."""
        if self.scope == "device":
            return f"device {self.device}"
        return name_of_row(self.test) if self.test is not None else f"all {WORDS[self.kind]} tests"


class Columns(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The answers of all nodes, as differences of logarithms; below 0 is slower. NaN is not measured."""

    columns: tuple[Column, ...]
    screen: Array
    """By node and column."""
    retests: Array
    """By retest session, node and column."""


def columns_of(fleet: Measured) -> Columns:
    """All questions about ``fleet``, and their answers.

    The reference of every session is the fleet's screen.
    """
    asked = _asked(fleet)
    screened = average(fleet.screen, 2)
    shared = np.sum(~np.isnan(screened), axis=0) >= FEWEST_NODES
    of_nodes = np.where(shared, middle(screened, 0), np.nan)
    between = middle(_between_devices(fleet.screen), 0)
    retests = np.full((len(fleet.retests), len(fleet.nodes), len(asked)), np.nan)
    for answers, rates in zip(retests, fleet.retests, strict=True):
        there = ~np.isnan(rates).all(axis=(1, 2))  # few nodes do retests
        answers[there] = _answers(rates[there], fleet, asked, of_nodes, between)
    screen = _answers(fleet.screen, fleet, asked, of_nodes, between)
    answered = np.asarray(~np.isnan(screen).all(axis=0))  # no node used such a device beside another
    kept = tuple(column for column, some in zip(asked, answered, strict=True) if some)
    return Columns(columns=kept, screen=screen[:, answered], retests=retests[:, :, answered])


def _asked(fleet: Measured) -> tuple[Column, ...]:
    counts = Counter(fleet.kinds)
    kinds = [kind for kind in get_args(Kind) if counts[kind]]
    alone = {kind: fleet.tests[fleet.kinds.index(kind)] for kind in kinds if counts[kind] == 1}
    whole = [Column(scope="all", kind=kind, test=alone.get(kind)) for kind in kinds]
    tests = [
        Column(scope="test", kind=kind, test=test)
        for test, kind in zip(fleet.tests, fleet.kinds, strict=True)
        if counts[kind] > 1
    ]
    kind: Kind = "gpu" if counts["gpu"] else "host"
    several = len(fleet.devices) > 1 and counts[kind]
    devices = [Column(scope="device", kind=kind, device=device) for device in fleet.devices if several]
    return (*whole, *tests, *devices)


def _answers(
    rates: Array, fleet: Measured, asked: tuple[Column, ...], of_nodes: Array, between_devices: Array
) -> Array:
    """By node and column. ``of_nodes``, ``between_devices``: the fleet's medians, which are subtracted."""
    beside = average(rates, 2) - of_nodes
    apart = _between_devices(rates) - between_devices
    found = np.full((len(rates), len(asked)), np.nan)
    for place, column in enumerate(asked):
        same = [test for test, kind in enumerate(fleet.kinds) if kind == column.kind]
        if column.scope == "all":
            found[:, place] = middle(beside[:, same], 1)
        elif column.scope == "device":
            found[:, place] = middle(apart[:, same, fleet.devices.index(column.device or "")], 1)
        else:
            own = fleet.tests.index(column.test or "")
            found[:, place] = beside[:, own] - middle(beside[:, [other for other in same if other != own]], 1)
    return found


def _between_devices(rates: Array) -> Array:
    """Each device's distance from the median of the node's others."""
    if rates.shape[2] < 2:
        return np.full_like(rates, np.nan)
    others = [middle(np.delete(rates, device, axis=2), 2) for device in range(rates.shape[2])]
    return np.asarray(rates - np.stack(others, axis=2))
