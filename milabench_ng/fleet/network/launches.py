"""Launches over nodes: the rate by the number of nodes. Reading aside, pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from milabench_ng.fleet.network.meetings import NOTHING_TOLD, Meeting, read_meeting
from milabench_ng.fleet.nodes import NodeName
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped
from milabench_ng.records.links import RankResult


class OverNodes(msgspec.Struct, frozen=True, kw_only=True):
    """A launch on all groups of so many nodes."""

    test: str
    unit: str
    nodes: int
    ranks: int
    """Of one group."""
    groups: int
    failed: int
    per_rank: float | None
    """Items per second of a rank, the mean of its group; of the median group."""
    of_fewest: float | None
    """That over the same on the fewest nodes: 1 for a network that costs nothing."""
    worst: float | None
    worst_begins: NodeName | None
    """The first node of the slowest group."""
    problem: str = ""
    """Of the first one that failed."""

    @property
    def total(self) -> float | None:
        """Items per second of all ranks of a group."""
        return None if self.per_rank is None else self.per_rank * self.ranks


class OverNodesReport(msgspec.Struct, frozen=True, kw_only=True):
    """All launches over nodes."""

    back_ends: tuple[str, ...]
    rows: tuple[OverNodes, ...]
    left: Mapping[NodeName, str]
    """Nodes that did not stay to the end, and why."""

    @property
    def exit_code(self) -> int:
        """1 if a launch failed."""
        return int(any(row.failed for row in self.rows))


def read_over_nodes(folder: Path) -> tuple[OverNodesReport | None, tuple[str, ...]]:
    """What a fleet's launches over nodes showed, None without any; and what cannot be read."""
    try:
        meeting = read_meeting(folder, "launches")
    except InputError as error:
        return None, (str(error),)
    return (None if meeting is None or not meeting.plan.nodes else over_nodes_report(meeting)), ()


def over_nodes_report(meeting: Meeting) -> OverNodesReport:
    fewest: dict[str, float] = {}
    rows = []
    for row in _rows(meeting):
        base = fewest.setdefault(row.test, row.per_rank) if row.per_rank is not None else None
        rows.append(msgspec.structs.replace(row, of_fewest=row.per_rank / base if row.per_rank and base else None))
    left = {one.node: one.reason for one in meeting.left.values()}
    return OverNodesReport(back_ends=meeting.back_ends, rows=tuple(rows), left=left)


def _rows(meeting: Meeting) -> Iterator[OverNodes]:
    told = grouped(meeting.launches, lambda one: (one.round, one.group))
    for number, planned in enumerate(meeting.plan.rounds):
        ranks = len(planned.groups[0]) * meeting.begun.devices
        if planned.launch is None or ranks < planned.launch.least_devices:
            continue
        there = {group: every for (place, group), every in told.items() if place == number}
        rates = sorted((rate, group) for group, every in there.items() if (rate := _rate(every, ranks)) is not None)
        problem = next((one.problem for every in there.values() for one in every if one.problem), "")
        failed = len(planned.groups) - len(rates)
        yield OverNodes(
            test=planned.launch.test,
            unit=planned.launch.unit,
            nodes=len(planned.groups[0]),
            ranks=ranks,
            groups=len(planned.groups),
            failed=failed,
            per_rank=float(np.median([rate for rate, _ in rates])) if rates else None,
            of_fewest=None,
            worst=rates[0][0] if rates else None,
            worst_begins=planned.groups[rates[0][1]][0] if rates else None,
            problem=problem or (_why(meeting, planned.groups, number) if failed else ""),
        )


def _why(meeting: Meeting, groups: Iterable[tuple[NodeName, ...]], number: int) -> str:
    """Why a group has no rate, and nobody told of a problem."""
    gone = next((node for group in groups for node in group if meeting.missed(node, number + 1)), "")
    return f"{gone} left" if gone else NOTHING_TOLD


def _rate(every: list[RankResult], ranks: int) -> float | None:
    """The mean of all ranks of a group; None if one of them failed, told nothing, or did not as many steps."""
    rates = [one.rate for one in every if one.rate is not None]
    if len(rates) < ranks or len(every) > ranks or len({one.steps for one in every}) > 1:
        return None
    return math.fsum(rates) / ranks
