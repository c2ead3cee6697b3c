"""What is said of a node, and of the fleet. Pure."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from milabench_ng.fleet.verdicts.columns import Column
from milabench_ng.fleet.verdicts.limits import Strictness
from milabench_ng.fleet.verdicts.measured import Kind

_MOST = 700.0
"""Larger logarithms have no number. The interval of a ratio of four wild nodes can be as wide."""

Verdict = Literal["pass", "slow", "faulty", "lost", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("slow", "faulty", "lost", "inconclusive", "pass")
"""The worst first."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A node's rate over that of the fleet's median node, with its 95 % interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def around(log: float, half: float) -> Ratio:
        """Of logarithms; ``half``: of the interval."""
        low, high = max(-_MOST, log - half), min(_MOST, log + half)
        return Ratio(value=math.exp(log), low=math.exp(low), high=math.exp(high))


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a node."""

    node: str
    verdict: Verdict
    why: str = ""
    ratio: Ratio | None = None
    """In what ``cause`` says; else in all tests of the first kind. None without results."""
    cause: Column | None = None
    """What it is slow in, or may be. None if it is not."""
    also: tuple[Column, ...] = ()
    """What else it is slow in."""
    failed: tuple[str, ...] = ()
    """The tests with failed launches in the sessions that decide."""
    retests: int = 0
    """How many retest sessions it did."""


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """What this fleet's screen and retests would find."""

    scope: str
    kind: Kind
    spread: float
    """Standard deviation between healthy nodes in one session, as a share."""
    found: float
    """How slow a node has to be to be found with 95 %, as a share."""


class FleetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a fleet."""

    nodes: tuple[NodeVerdict, ...]
    expected_false_alarms: float
    """How many healthy nodes of such a fleet are called slow, on average."""
    noticed: tuple[Noticed, ...] = ()
    strictness: Strictness

    def count(self, verdict: Verdict) -> int:
        """How many nodes have it."""
        return sum(one.verdict == verdict for one in self.nodes)

    @property
    def exit_code(self) -> int:
        """0 if all nodes pass, 1 if one is slow, faulty or lost, 3 if one is undecided."""
        if any(one.verdict in ("slow", "faulty", "lost") for one in self.nodes):
            return 1
        return 3 if self.count("inconclusive") else 0
