"""What is printed of a network, as one value, and what it means for the verdicts on nodes. Reading aside, pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from milabench_ng.fleet.network.judging import STRICT, Judged, LinkState, judge_network
from milabench_ng.fleet.network.meetings import (
    RENDEZVOUS,
    Meeting,
    PairSeen,
    RingSeen,
    pairs_seen,
    read_meeting,
    rings_seen,
)
from milabench_ng.fleet.network.rounds import Pair
from milabench_ng.fleet.nodes import NodeName
from milabench_ng.fleet.verdicts.columns import Column
from milabench_ng.fleet.verdicts.verdict import FleetVerdict, NodeVerdict
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import names_of

TEST = "network"
"""What the cause of a node with slow links is called."""
_CAUSE = Column(scope="all", kind="link", test=TEST)


class LinkOfFleet(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two nodes."""

    nodes: Pair
    gb_s: float | None
    """In the screen; None if it failed."""
    latency_us: float | None
    judged: Judged


class NodeLinks(msgspec.Struct, frozen=True, kw_only=True):
    """A node by all of its links."""

    node: NodeName
    gb_s: float | None
    """What the better part of its links has."""
    judged: Judged


class Rings(msgspec.Struct, frozen=True, kw_only=True):
    """All rings of one size: 10^9 bytes per second that each of their nodes sends."""

    size: int
    rings: int
    failed: int
    median: float | None
    worst: float | None
    worst_begins: NodeName | None
    """The first node of the slowest one."""


class NetworkReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a network."""

    back_ends: tuple[str, ...]
    variables: tuple[str, ...]
    """Those that change how messages travel, as every node has them: NAME=VALUE."""
    devices: int
    """Of each node, that met at the same time."""
    links: tuple[LinkOfFleet, ...]
    nodes: tuple[NodeLinks, ...]
    rings: tuple[Rings, ...]
    expected_false_alarms: float
    margin: float

    def count(self, state: LinkState) -> int:
        return sum(one.judged.state == state for one in self.links)

    @property
    def exit_code(self) -> int:
        """1 if a link is slow or broken, 3 if one is undecided."""
        if self.count("slow") or self.count("broken"):
            return 1
        return 3 if self.count("inconclusive") else 0


def read_network(folder: Path) -> tuple[NetworkReport | None, tuple[str, ...]]:
    """What is known of a fleet's network, None without a meeting; and what cannot be read."""
    try:
        screen, retest = read_meeting(folder, "screen"), read_meeting(folder, "retest")
    except InputError as error:
        return None, (str(error),)
    return (None if screen is None or not screen.plan.nodes else network_report(screen, retest)), ()


def network_report(screen: Meeting, retest: Meeting | None) -> NetworkReport:
    meetings = (screen, retest) if retest else (screen,)
    seen, again = tuple(pairs_seen(screen)), tuple(pairs_seen(retest)) if retest else ()
    left = {node: _of_left(meeting, node) for meeting in meetings for node in meeting.left}
    verdict = judge_network(seen, again, left)
    first = _first(seen)
    rates = verdict.rates
    return NetworkReport(
        back_ends=tuple(dict.fromkeys(name for meeting in meetings for name in meeting.back_ends)),
        variables=_shared(screen),
        devices=screen.begun.devices,
        links=tuple(_link(one, first.get(one), judged) for one, judged in verdict.links.items()),
        nodes=tuple(
            NodeLinks(node=node, gb_s=math.exp(rates[node]) if node in rates else None, judged=judged)
            for node, judged in verdict.nodes.items()
        ),
        rings=tuple(_rings(tuple(rings_seen(screen)))),
        expected_false_alarms=verdict.expected_false_alarms,
        margin=STRICT.margin,
    )


def with_network(fleet: FleetVerdict, network: NetworkReport | None) -> FleetVerdict:
    """The verdicts on nodes, in which slow and broken links count, too."""
    if network is None:
        return fleet
    judged = {one.node: one.judged for one in network.nodes}
    return msgspec.structs.replace(
        fleet,
        nodes=tuple(_with_links(one, judged[one.node]) if one.node in judged else one for one in fleet.nodes),
        expected_false_alarms=fleet.expected_false_alarms + network.expected_false_alarms,
    )


def _with_links(node: NodeVerdict, links: Judged) -> NodeVerdict:
    """What the node's own tests say counts first, unless its links are worse."""
    if node.verdict in ("lost", "faulty") or links.state == "pass":
        return node
    if links.state == "broken":
        return msgspec.structs.replace(node, verdict="faulty", why=links.why, ratio=None, cause=_CAUSE, also=())
    if node.verdict == "slow":
        also = (*node.also, *([_CAUSE] if links.state == "slow" else []))
        return msgspec.structs.replace(node, also=also)
    if links.state == "slow":
        return msgspec.structs.replace(
            node, verdict="slow", why="", ratio=links.ratio, cause=_CAUSE, retests=links.retests
        )
    if node.verdict == "inconclusive":
        return node
    return msgspec.structs.replace(
        node, verdict="inconclusive", why=links.why, ratio=links.ratio, cause=_CAUSE, retests=links.retests
    )


def _of_left(meeting: Meeting, node: NodeName) -> Judged:
    """What is said of a node that left a meeting: only one that left alone is accused of it."""
    left = meeting.left[node]
    if not left.came:
        return Judged(state="inconclusive", why=f"not measured, since it did not come ({RENDEZVOUS}): {left.reason}")
    why = f"left the network phase: {left.reason}"
    if others := meeting.stuck_with(node):
        return Judged(state="inconclusive", why=f"{why}, as did {names_of(others)}, which it met then")
    return Judged(state="broken", why=why)


def _first(seen: Iterable[PairSeen]) -> Mapping[Pair, PairSeen]:
    found: dict[Pair, PairSeen] = {}
    for one in seen:
        found.setdefault(one.pair, one)
    return found


def _link(one: Pair, seen: PairSeen | None, judged: Judged) -> LinkOfFleet:
    rate = seen.log_rate if seen else None
    return LinkOfFleet(
        nodes=one,
        gb_s=None if rate is None else math.exp(rate),
        latency_us=seen.latency_us if seen else None,
        judged=msgspec.structs.replace(judged, why=f"{judged.why}: {seen.problem}")
        if seen and seen.problem and judged.why
        else judged,
    )


def _rings(seen: tuple[RingSeen, ...]) -> Iterable[Rings]:
    for size in dict.fromkeys(len(one.nodes) for one in seen):
        every = [one for one in seen if len(one.nodes) == size]
        rated = sorted((one.gb_s, one.nodes[0]) for one in every if one.gb_s is not None)
        yield Rings(
            size=size,
            rings=len(every),
            failed=len(every) - len(rated),
            median=float(np.median([rate for rate, _ in rated])) if rated else None,
            worst=rated[0][0] if rated else None,
            worst_begins=rated[0][1] if rated else None,
        )


def _shared(meeting: Meeting) -> tuple[str, ...]:
    """What all nodes have alike."""
    sets = [{f"{name}={value}" for name, value in one.variables.items()} for one in meeting.hellos]
    return tuple(sorted(set.intersection(*sets))) if sets else ()
