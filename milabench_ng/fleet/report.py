"""The report on a fleet: everything that is printed, as one value. Pure, but for what it reads of the network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.fleet.measuring import FleetResults, SessionOfNode
from milabench_ng.fleet.network.launches import OverNodesReport, read_over_nodes
from milabench_ng.fleet.network.meetings import MeetingName, meetings_left
from milabench_ng.fleet.network.report import NetworkReport, read_network, with_network
from milabench_ng.fleet.nodes import SCREEN, NodeName, nodes_by_value, shared_with
from milabench_ng.fleet.verdicts.judging import judge
from milabench_ng.fleet.verdicts.limits import USUAL, Strictness
from milabench_ng.fleet.verdicts.measured import Kind, Measured, average, middle
from milabench_ng.fleet.verdicts.verdict import FleetVerdict, NodeVerdict


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the report."""

    verdict: NodeVerdict
    group: str
    """Empty without groups."""
    per_node: float | None
    """Its score in the screen; None unless it ran all weighted tests."""
    device_hours: float
    ratios: tuple[float | None, ...]
    """Of the screen: its rate over the fleet's median, one per test."""


class TestOfFleet(msgspec.Struct, frozen=True, kw_only=True):
    """A test over all nodes, in items per second and device, from the screen."""

    __test__ = False  # not a pytest class

    test: str
    unit: str
    kind: Kind
    nodes: int
    median: float
    low: float
    """Five percent of the nodes are slower."""
    high: float
    """Five percent are faster."""
    worst: float
    worst_node: NodeName


class FleetScore(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of the nodes that have one, from the screen."""

    unit: str
    nodes: int
    of: int
    worst: float
    worst_node: NodeName
    median: float
    total: float
    price_per_node: float | None = None

    def per_point(self, score: float) -> float | None:
        """What a point costs on a node of this score."""
        return None if self.price_per_node is None else self.price_per_node / score

    @property
    def total_per_point(self) -> float | None:
        """What a point costs over all nodes: those without a score cost as much as the others."""
        return None if self.price_per_node is None else self.price_per_node * self.of / self.total


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should be the same on all nodes: its values, the most frequent first."""

    what: str
    values: tuple[tuple[str, tuple[NodeName, ...]], ...]


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a fleet."""

    source: str
    manifest: FleetManifest
    verdict: FleetVerdict
    lines: tuple[NodeLine, ...]
    tests: tuple[TestOfFleet, ...]
    score: FleetScore | None
    unpriced: str
    """Why there is no price for a point, if one was asked for."""
    differing: tuple[Differing, ...]
    marks: tuple[str, ...]
    """The comparability warnings that all nodes have."""
    device_hours: float
    grouped: bool
    pending: tuple[NodeName, ...] = ()
    problems: tuple[str, ...] = ()
    """Sessions that cannot be read, and what breaks the fleet's ledger."""
    going_on: bool = False
    network: NetworkReport | None = None
    """None if nodes did not meet."""
    over_nodes: OverNodesReport | None = None
    unmet: tuple[MeetingName, ...] = ()
    """The meetings that are still to be held."""

    @property
    def exit_code(self) -> int:
        """1 if a node, a link or a launch over nodes is not as it should be, 3 if one is undecided or missing."""
        codes = {self.verdict.exit_code, 3 if self.pending or self.unmet else 0}
        codes |= {one.exit_code for one in (self.network, self.over_nodes) if one is not None}
        return 1 if 1 in codes else max(codes)


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """How a fleet is judged, by the user's choice."""

    strict: Strictness = USUAL
    groups: Mapping[NodeName, str] | None = None
    price: float | None = None
    """Of a node."""


def build_fleet_report(source: str, folder: FleetFolder, results: FleetResults, asked: Judging) -> FleetReport:
    """The report on what the nodes measured."""
    fleet = results.measured
    network, unread = read_network(folder.path)
    over_nodes, unread_launches = read_over_nodes(folder.path)
    verdict = with_network(judge(fleet, asked.strict), network)
    screens = {one.node: one for one in results.sessions if one.session == SCREEN}
    hours = _hours_by_node(results.sessions)
    ratios = _ratios(fleet)
    made = _score(list(screens.values()), len(fleet.nodes), asked.price)
    return FleetReport(
        source=source,
        manifest=folder.manifest,
        verdict=verdict,
        lines=tuple(
            NodeLine(
                verdict=one,
                group=asked.groups.get(one.node, "") if asked.groups else "",
                per_node=screens[one.node].per_node if one.node in screens else None,
                device_hours=hours.get(one.node, 0.0),
                ratios=tuple(None if math.isnan(value) else float(value) for value in row),
            )
            for one, row in zip(verdict.nodes, ratios, strict=True)
        ),
        tests=_tests(fleet, results.units),
        score=made,
        unpriced=_why_unscored(screens.values(), folder.manifest.suite) if asked.price and made is None else "",
        differing=_differing(screens.values()),
        marks=_shared_marks(screens.values()),
        device_hours=math.fsum(hours.values()),
        grouped=asked.groups is not None,
        pending=results.pending,
        problems=(
            *(f"fleet.jsonl: {one}" for one in folder.ledger.problems),
            *results.problems,
            *_copied(results.sessions),
            *unread,
            *unread_launches,
        ),
        going_on=folder.going_on,
        network=network,
        over_nodes=over_nodes,
        unmet=meetings_left(folder),
    )


def _copied(sessions: Iterable[SessionOfNode]) -> Iterator[str]:
    """Sessions whose results are of one run; `mnb verify` also finds copies that have another id."""
    owners: dict[str, str] = {}
    for one in sessions:
        name = f"{one.node} {one.session}"
        for other in shared_with(name, one.runs, owners):
            yield f"{name} is a copy of {other}: both have one run id. To see all that is wrong: mnb verify"


def _hours_by_node(sessions: Iterable[SessionOfNode]) -> dict[NodeName, float]:
    hours: dict[NodeName, float] = {}
    for one in sessions:
        hours[one.node] = hours.get(one.node, 0.0) + one.device_hours
    return hours


def _ratios(fleet: Measured) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """By node and test."""
    logs = average(fleet.screen, 2)
    return np.asarray(np.exp(logs - middle(logs, 0)))


def _tests(fleet: Measured, units: Mapping[str, str]) -> tuple[TestOfFleet, ...]:
    logs = average(fleet.screen, 2)
    made = []
    for place, (test, kind) in enumerate(zip(fleet.tests, fleet.kinds, strict=True)):
        known = np.flatnonzero(~np.isnan(logs[:, place]))
        if not known.size:
            continue
        column = logs[known, place]
        low, median, high = np.exp(np.quantile(column, (0.05, 0.5, 0.95)))  # of logarithms, like all ratios
        worst = int(np.argmin(column))
        made.append(
            TestOfFleet(
                test=test,
                unit=units[test],
                kind=kind,
                nodes=known.size,
                median=float(median),
                low=float(low),
                high=float(high),
                worst=float(np.exp(column[worst])),
                worst_node=fleet.nodes[known[worst]],
            )
        )
    return tuple(made)


def _score(screens: Sequence[SessionOfNode], nodes: int, price: float | None) -> FleetScore | None:
    """Of the nodes that ran all weighted tests; None if there is none."""
    scored = sorted((one.per_node, one.node, one.unit) for one in screens if one.per_node)
    if not scored:
        return None
    values = [value for value, *_ in scored]
    return FleetScore(
        unit=scored[0][2],
        nodes=len(scored),
        of=nodes,
        worst=values[0],
        worst_node=scored[0][1],
        median=float(np.median(values)),
        total=math.fsum(values),
        price_per_node=price,
    )


def _why_unscored(screens: Iterable[SessionOfNode], suite: str) -> str:
    if any(one.unit for one in screens):
        return "no node ran all weighted tests"
    return f"suite {suite!r} has no weights. Try --weights FILE"


def _shared_marks(screens: Iterable[SessionOfNode]) -> tuple[str, ...]:
    first, *others = [one.marks for one in screens] or [()]
    return tuple(mark for mark in first if all(mark in marks for marks in others))


def _differing(screens: Iterable[SessionOfNode]) -> tuple[Differing, ...]:
    """What has more than one value, or is known of some nodes only; and warnings that not all nodes have."""
    every = list(screens)
    told: dict[str, dict[NodeName, str]] = {}
    for what in dict.fromkeys(what for one in every for what in one.traits):
        told[what] = {one.node: one.traits.get(what, "not recorded") for one in every}
    for mark in dict.fromkeys(mark for one in every for mark in one.marks):
        told[f"warning: {mark}"] = {one.node: "yes" if mark in one.marks else "no" for one in every}
    grouped = {what: nodes_by_value(values) for what, values in told.items()}
    return tuple(
        Differing(what=what, values=tuple(values.items())) for what, values in grouped.items() if len(values) > 1
    )
