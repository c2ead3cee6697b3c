"""What a fleet measured: the rates of its nodes, by session, test and device. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from milabench_ng.fleet.nodes import SCREEN

Array = NDArray[np.float64]

Kind = Literal["gpu", "host", "storage", "link"]
"""What part of a node a test depends on."""

_KINDS: Mapping[str, Kind] = {
    "gpu-compute": "gpu",
    "gpu-memory": "gpu",
    "cpu": "host",
    "launch": "host",
    "io": "storage",
    "links": "link",
}


WORDS: Mapping[Kind, str] = {"gpu": "GPU-bound", "host": "host-bound", "storage": "storage", "link": "link"}
"""What tests of a kind are called."""


def kind_of(bound: str | None) -> Kind:
    """The part that ``bound``, as the workload declares it, depends on; the host if it declares nothing known."""
    return _KINDS.get(bound or "", "host")


class NodeSample(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of one launch."""

    node: str
    session: str
    test: str
    device: str
    log_rate: float


class Measured(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All rates of a fleet, as natural logarithms, averaged over the repeats of a session. NaN is not measured."""

    nodes: tuple[str, ...]
    tests: tuple[str, ...]
    kinds: tuple[Kind, ...]
    """One per test."""
    devices: tuple[str, ...]
    screen: Array
    """By node, test and device."""
    retests: Array
    """By retest session, node, test and device."""
    sessions: tuple[str, ...] = ()
    """The names of the retest sessions."""
    failed: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    """The tests with failed launches, by node and session."""
    lost: Mapping[str, str] = {}
    """The nodes without results, and why."""
    wrong: Mapping[str, tuple[str, ...]] = {}
    """The tests in which a node computed something wrong, in whatever session."""
    apart: Mapping[str, str] = {}
    """The nodes that did other work than the fleet, and which."""


def measured(
    samples: Iterable[NodeSample],
    kinds: Mapping[str, Kind],
    failed: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
    lost: Mapping[str, str] | None = None,
    wrong: Mapping[str, tuple[str, ...]] | None = None,
    apart: Mapping[str, str] | None = None,
) -> Measured:
    """Arrange ``samples``. ``kinds``: of every test. Nodes that only failed, were lost or did other work are part of
    the fleet, too."""
    sums: dict[tuple[str, str, str, str], tuple[float, int]] = {}
    for one in samples:
        key = (one.session, one.node, one.test, one.device)
        total, count = sums.get(key, (0.0, 0))
        sums[key] = (total + one.log_rate, count + 1)
    failed, lost, apart = failed or {}, lost or {}, apart or {}
    nodes = _in_order({node for _, node, _, _ in sums} | set(failed) | set(lost) | set(apart))
    seen = {test for *_, test, _ in sums}
    tests = tuple(test for test in kinds if test in seen)
    devices = _in_order({device for *_, device in sums})
    sessions = _in_order({session for session, *_ in sums} - {SCREEN})
    places = [{name: place for place, name in enumerate(names)} for names in (nodes, tests, devices)]
    found = {name: np.full((len(nodes), len(tests), len(devices)), np.nan) for name in (SCREEN, *sessions)}
    for (session, node, test, device), (total, count) in sums.items():
        at = (places[0][node], places[1][test], places[2][device])
        found[session][at] = total / count
    shape = (0, len(nodes), len(tests), len(devices))
    return Measured(
        nodes=nodes,
        tests=tests,
        kinds=tuple(kinds[test] for test in tests),
        devices=devices,
        screen=found[SCREEN],
        retests=np.stack([found[name] for name in sessions]) if sessions else np.empty(shape),
        sessions=sessions,
        failed=failed,
        lost=lost,
        wrong=wrong or {},
        apart=apart,
    )


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """By name; numbers by value, also at the end of a name."""
    return tuple(sorted(names, key=_natural))


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return (stem, int(digits[:18]) if digits else -1, name)


def middle(values: Array, axis: int) -> Array:
    """The median over an axis without what was not measured; NaN where nothing was."""
    ordered = np.sort(values, axis=axis)  # NaN come last
    known = np.sum(~np.isnan(values), axis=axis, keepdims=True)
    ends = [np.take_along_axis(ordered, np.maximum(place, 0), axis) for place in ((known - 1) // 2, known // 2)]
    ends[1] = np.where(known > 0, ends[1], np.nan)
    return np.asarray(np.squeeze((ends[0] + ends[1]) / 2, axis=axis))


def average(values: Array, axis: int) -> Array:
    """The mean over an axis without what was not measured; NaN where nothing was."""
    known = ~np.isnan(values)
    total = np.sum(np.where(known, values, 0.0), axis=axis)
    count = np.sum(known, axis=axis)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))
