"""``network/screen.jsonl``, ``retest.jsonl`` and ``launches.jsonl``: a meeting of nodes, one line a fact.

Only the command that starts the nodes writes them, each at once when the meeting is over. The fleet's ledger has their
hashes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.ledger import AnyFleetEvent, NetworkMeasured
from milabench_ng.fleet.network.rounds import Pair, pair
from milabench_ng.fleet.nodes import SCREEN, NodeName
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_content
from milabench_ng.model.grouping import grouped
from milabench_ng.model.plain import plain, short
from milabench_ng.records.links import (
    LinkBegun,
    LinkHello,
    LinkLeft,
    LinkLine,
    LinkPlanned,
    LinkResult,
    MeetingPlan,
    RankResult,
)
from milabench_ng.records.names import file_digest, write_atomically

NETWORK = "network"
MeetingName = Literal["screen", "retest", "launches"]
MEETINGS: tuple[MeetingName, ...] = get_args(MeetingName)


NOTHING_TOLD = "its nodes stayed, and told nothing of it"
RENDEZVOUS = "--rendezvous names another address of the host that starts the fleet"
STUCK = "both of its nodes were stuck in it"


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes showed each other."""

    plan: MeetingPlan
    begun: LinkBegun = LinkBegun(backend="gloo", devices=1)
    hellos: tuple[LinkHello, ...] = ()
    results: tuple[LinkResult, ...] = ()
    launches: tuple[RankResult, ...] = ()
    left: Mapping[NodeName, LinkLeft] = {}
    """The nodes that have left before the end."""

    @property
    def back_ends(self) -> tuple[str, ...]:
        """With what the nodes measured; none if nobody did."""
        return (self.begun.backend,) if self.results or self.launches else ()

    def came(self, node: NodeName) -> bool:
        """Whether a node had reached the place to meet."""
        return node not in self.left or self.left[node].came

    def missed(self, node: NodeName, number: int) -> bool:
        """Whether a node had left before a round."""
        return not self.came(node) or (node in self.left and self.left[node].round < number)

    def stuck_with(self, node: NodeName) -> tuple[NodeName, ...]:
        """The nodes of its group that left in the same round: what failed may be what is between them."""
        number = self.left[node].round
        groups = self.plan.rounds[number].groups if number < len(self.plan.rounds) else ()
        members = next((group for group in groups if node in group), ())
        there = (one for one in members if one != node and one in self.left and self.came(one))
        return tuple(one for one in there if self.left[one].round == number)


class PairSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One time that a pair met."""

    pair: Pair
    log_rate: float | None
    """Of the slowest pair of devices; None if one of them failed."""
    latency_us: float | None = None
    problem: str = ""


class RingSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What a ring showed."""

    nodes: tuple[NodeName, ...]
    gb_s: float | None
    """Of the slowest device."""
    problem: str = ""


def pairs_seen(meeting: Meeting) -> Iterator[PairSeen]:
    """All pairs that met. One that failed as one of its nodes left does not count: what it lacked was the node."""
    for number, members, results in _groups(meeting, "pairs"):
        if any(meeting.missed(node, number) for node in members):
            continue
        rates, problem = _told(results, meeting.begun)
        leaving = [node for node in members if node in meeting.left and meeting.left[node].round == number]
        if problem and leaving:
            if len(leaving) < len(members):
                continue
            problem = STUCK
        latencies = [one.latency_us for one in results if one.latency_us is not None]
        yield PairSeen(
            pair=pair(*members),
            log_rate=None if problem else math.log(min(rates)),
            latency_us=None if problem else max(latencies, default=None),
            problem=problem,
        )


def rings_seen(meeting: Meeting) -> Iterator[RingSeen]:
    """All rings, without the nodes that had left before them."""
    for number, members, results in _groups(meeting, "ring"):
        there = tuple(node for node in members if not meeting.missed(node, number))
        if len(there) > 1:
            rates, problem = _told(results, meeting.begun)
            yield RingSeen(nodes=there, gb_s=None if problem else min(rates), problem=problem)


def write_meeting(folder: Path, name: MeetingName, meeting: Meeting) -> str:
    """Write its file; the SHA-256 of it. Retests of an earlier screen say nothing about this one."""
    lines: list[LinkLine] = [LinkPlanned(plan=meeting.plan), meeting.begun, *meeting.hellos]
    lines += [*meeting.results, *meeting.launches, *meeting.left.values()]
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (folder / NETWORK).mkdir(exist_ok=True)
    if name == "screen":
        (folder / NETWORK / "retest.jsonl").unlink(missing_ok=True)
    write_atomically((folder / NETWORK).resolve() / f"{name}.jsonl", content)
    return file_digest(content)


def meeting_digest(folder: Path, name: str) -> str:
    """The SHA-256 of its file; empty if it cannot be read."""
    try:
        return file_digest(read_content(folder / NETWORK / f"{name}.jsonl", LARGE, os.O_NOFOLLOW))
    except InputError:
        return ""


def read_meeting(folder: Path, name: MeetingName) -> Meeting | None:
    """The untrusted file of a meeting; None if there is none. Raises InputError if it is not valid."""
    file = folder / NETWORK / f"{name}.jsonl"
    if not os.path.lexists(file):
        return None
    try:
        lines = [_decoder.decode(line) for line in read_content(file, LARGE, os.O_NOFOLLOW).splitlines()]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{plain(file)}: {short(error)}") from None
    if not lines or not isinstance(lines[0], LinkPlanned):
        raise InputError(f"{plain(file)}: it does not begin with its plan")
    plan = lines[0].plan
    begun = next((one for one in lines if isinstance(one, LinkBegun)), Meeting(plan=plan).begun)
    results = tuple(one for one in lines if isinstance(one, LinkResult))
    launches = tuple(one for one in lines if isinstance(one, RankResult))
    told: tuple[LinkResult | RankResult, ...] = (*results, *launches)
    if not all(fits(one, plan, begun) for one in told):
        raise InputError(f"{plain(file)}: it has results of groups that its plan does not have")
    if not all(one.groups and all(one.groups) for one in plan.rounds):
        raise InputError(f"{plain(file)}: its plan has a group without nodes")
    if any(len(group) != 2 for one in plan.rounds if one.shape == "pairs" for group in one.groups):
        raise InputError(f"{plain(file)}: its plan has a pair that does not have two nodes")
    return Meeting(
        plan=plan,
        begun=begun,
        hellos=tuple(one for one in lines if isinstance(one, LinkHello)),
        results=results,
        launches=launches,
        left={one.node: one for one in lines if isinstance(one, LinkLeft)},
    )


_decoder: msgspec.json.Decoder[LinkLine] = msgspec.json.Decoder(LinkLine)


def planned(one: LinkResult | RankResult, plan: MeetingPlan) -> bool:
    """Whether its node is in this group of the plan."""
    groups = plan.rounds[one.round].groups if one.round < len(plan.rounds) else ()
    return one.group < len(groups) and one.node in groups[one.group]


def fits(one: LinkResult | RankResult, plan: MeetingPlan, begun: LinkBegun) -> bool:
    """Whether a node that keeps to the plan can tell this."""
    if not planned(one, plan) or one.device >= begun.devices or one.backend != begun.backend:
        return False
    return isinstance(one, LinkResult) or one.ranks == len(plan.rounds[one.round].groups[one.group]) * begun.devices


def last_held(events: Iterable[AnyFleetEvent]) -> Mapping[MeetingName, NetworkMeasured]:
    """The meetings that count: the last of each name, and no retests of an earlier screen."""
    held: dict[MeetingName, NetworkMeasured] = {}
    for one in events:
        if isinstance(one, NetworkMeasured):
            if one.meeting == "screen":
                held.pop("retest", None)
            held[one.meeting] = one
    return held


def screened(fleet: FleetFolder) -> tuple[NodeName, ...]:
    """The nodes that can meet: those whose first session has ended."""
    standings = fleet.standings
    return tuple(node for node in fleet.manifest.nodes if standings[node, SCREEN].state == "ended")


def meetings_left(fleet: FleetFolder) -> tuple[MeetingName, ...]:
    """The meetings that are missing, in order: those that were not held, or not with all nodes that can meet."""
    held, there = last_held(fleet.ledger.events), set(screened(fleet))
    left: list[MeetingName] = []
    if fleet.manifest.network:
        if "screen" not in held or (len(there) > 1 and not there <= set(held["screen"].nodes)):
            left.append("screen")
        if left or "retest" not in held:
            left.append("retest")
    if fleet.manifest.over_nodes and ("launches" not in held or not there <= set(held["launches"].nodes)):
        left.append("launches")
    return tuple(left)


def _groups(meeting: Meeting, shape: str) -> Iterator[tuple[int, tuple[NodeName, ...], list[LinkResult]]]:
    """Groups of a shape, each with its round and what was told of it, in order."""
    told = grouped(meeting.results, lambda one: (one.round, one.group))
    for number, planned in enumerate(meeting.plan.rounds):
        for place, members in enumerate(planned.groups if planned.shape == shape else ()):
            yield number, members, told.get((number, place), [])


def _told(results: Sequence[LinkResult], begun: LinkBegun) -> tuple[list[float], str]:
    """The rates of all devices, and what is wrong with them; empty if nothing is."""
    told = {one.device for one in results if one.gb_s is not None}
    problem = next((one.problem for one in results if one.problem), "")
    rates = [one.gb_s for one in results if one.gb_s is not None]
    return rates, problem or (NOTHING_TOLD if len(told) < begun.devices else "")
