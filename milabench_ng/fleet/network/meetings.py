"""``network/screen.jsonl``, ``retest.jsonl`` and ``launches.jsonl``: a meeting of nodes, one line a fact.

Only the command that starts the nodes writes them, each at once when the meeting is over. The fleet's ledger has their
hashes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from milabench_ng.fleet.network.rounds import Pair, pair
from milabench_ng.fleet.nodes import NodeName
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_content
from milabench_ng.model.plain import plain, short
from milabench_ng.records.links import LinkHello, LinkLeft, LinkLine, LinkPlanned, LinkResult, MeetingPlan, RankResult
from milabench_ng.records.names import file_digest, write_atomically

NETWORK = "network"
MeetingName = Literal["screen", "retest", "launches"]
MEETINGS: tuple[MeetingName, ...] = get_args(MeetingName)


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes showed each other."""

    plan: MeetingPlan
    hellos: tuple[LinkHello, ...] = ()
    results: tuple[LinkResult, ...] = ()
    launches: tuple[RankResult, ...] = ()
    left: Mapping[NodeName, str] = {}
    """Why a node has left before the end."""


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
    """All pairs that met, but those with a node that has left: what they lacked was the node."""
    for members, results in _groups(meeting, "pairs"):
        if any(node in meeting.left for node in members):
            continue
        rates = [one.gb_s for one in results if one.gb_s is not None]
        problem = next((one.problem for one in results if one.problem), "")
        latencies = [one.latency_us for one in results if one.latency_us is not None]
        yield PairSeen(
            pair=pair(*members),
            log_rate=None if problem else math.log(min(rates)),
            latency_us=None if problem else max(latencies, default=None),
            problem=problem,
        )


def rings_seen(meeting: Meeting) -> Iterator[RingSeen]:
    """All rings, without the nodes that had left before the end."""
    for members, results in _groups(meeting, "ring"):
        rates = [one.gb_s for one in results if one.gb_s is not None]
        problem = next((one.problem for one in results if one.problem), "")
        there = tuple(node for node in members if node not in meeting.left)
        yield RingSeen(nodes=there, gb_s=None if problem else min(rates), problem=problem)


def write_meeting(folder: Path, name: MeetingName, meeting: Meeting) -> str:
    """Write its file; the SHA-256 of it."""
    lines: list[LinkLine] = [LinkPlanned(plan=meeting.plan), *meeting.hellos, *meeting.results, *meeting.launches]
    lines += [LinkLeft(node=node, reason=reason) for node, reason in meeting.left.items()]
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (folder / NETWORK).mkdir(exist_ok=True)
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
    results = tuple(one for one in lines if isinstance(one, LinkResult))
    launches = tuple(one for one in lines if isinstance(one, RankResult))
    told: tuple[LinkResult | RankResult, ...] = (*results, *launches)
    if any(one.round >= len(plan.rounds) or one.group >= len(plan.rounds[one.round].groups) for one in told):
        raise InputError(f"{plain(file)}: it has results of groups that its plan does not have")
    if not all(one.groups and all(one.groups) for one in plan.rounds):
        raise InputError(f"{plain(file)}: its plan has a group without nodes")
    if any(len(group) != 2 for one in plan.rounds if one.shape == "pairs" for group in one.groups):
        raise InputError(f"{plain(file)}: its plan has a pair that does not have two nodes")
    return Meeting(
        plan=plan,
        hellos=tuple(one for one in lines if isinstance(one, LinkHello)),
        results=results,
        launches=launches,
        left={one.node: one.reason for one in lines if isinstance(one, LinkLeft)},
    )


_decoder: msgspec.json.Decoder[LinkLine] = msgspec.json.Decoder(LinkLine)


def _groups(meeting: Meeting, shape: str) -> Iterator[tuple[tuple[NodeName, ...], list[LinkResult]]]:
    """Groups of a shape, each with what was told of it, in order; those that told nothing are left out."""
    told: dict[tuple[int, int], list[LinkResult]] = {}
    for one in meeting.results:
        if one.problem or one.gb_s is not None:
            told.setdefault((one.round, one.group), []).append(one)
    for (number, group), results in sorted(told.items()):
        planned = meeting.plan.rounds[number]
        if planned.shape == shape:
            yield planned.groups[group], results


def back_ends(meetings: Iterable[Meeting]) -> tuple[str, ...]:
    """With what the nodes measured."""
    told: list[LinkResult | RankResult] = []
    for meeting in meetings:
        told += [*meeting.results, *meeting.launches]
    return tuple(dict.fromkeys(one.backend for one in told))
