"""Whether each node of a delivered fleet keeps what the bid promised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.weights import Weights
from milabench_ng.fleet.bundling import OpenedFleet
from milabench_ng.fleet.folder import FleetFolder, NodeSession
from milabench_ng.fleet.nodes import SCREEN, NodeName
from milabench_ng.fleet.summaries import workers
from milabench_ng.fleet.verifying import copies
from milabench_ng.model.errors import InputError
from milabench_ng.tender.acceptance import Acceptance, accept
from milabench_ng.tender.own_bounds import both_sides
from milabench_ng.verification.absurd import computing_from
from milabench_ng.verification.verified_results import (
    CheckedResults,
    Demands,
    check_results,
    require_different,
)

NodeDecision = Literal["keeps", "breaks", "inconclusive", "lost"]


class AcceptedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided of a node, by its screen."""

    node: NodeName
    acceptance: Acceptance | None
    why: str = ""
    """Why nothing is decided."""
    lost: bool = False
    traits: frozenset[str] = frozenset()
    """What no two runs have in common."""

    @property
    def decision(self) -> NodeDecision:
        """In one word."""
        if self.acceptance is None:
            return "lost" if self.lost else "inconclusive"
        return self.acceptance.verdict


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes are held to."""

    bid: CheckedResults
    demands: Demands
    """Of what is delivered."""
    weights: Mapping[str, Weights | None]
    """By suite."""
    guarantee: float


def accept_fleet(delivered: OpenedFleet, promise: Promise) -> tuple[AcceptedNode, ...]:
    """Verify and judge the screen of every node. Raises InputError for a fleet whose ledger or bundle is not sound."""
    fleet = delivered.fleet
    for problem in (*delivered.damage, *(f"fleet.jsonl: {one}" for one in fleet.ledger.problems)):
        raise InputError(f"{delivered.source}: {problem}. Run mnb verify on it")
    screens = [one for one in fleet.sessions if one.session == SCREEN]
    with workers(len(screens)) as each:
        found = {one.node: one for one in each(partial(_judged, promise), screens)}
    return tuple(_all(fleet, found))


def _all(fleet: FleetFolder, found: Mapping[NodeName, AcceptedNode]) -> Iterator[AcceptedNode]:
    standings, owners = fleet.standings, dict[str, str]()
    for node in fleet.manifest.nodes:
        standing = standings[node, SCREEN]
        if node not in found or standing.state in ("lost", "cut off"):
            why = standing.reason or "no results are here"
            yield AcceptedNode(node=node, acceptance=None, why=why, lost=standing.state != "cut off")
        elif copied := next(copies(node, found[node].traits, owners), ""):
            yield AcceptedNode(node=node, acceptance=None, why=copied)
        else:
            yield found[node]


def _judged(promise: Promise, session: NodeSession) -> AcceptedNode:
    try:
        delivered = check_results(str(session.path), promise.demands)
        if delivered.broken:
            return AcceptedNode(node=session.node, acceptance=None, why=delivered.sentence)
        require_different({"bid": promise.bid, session.node: delivered})
        with computing_from(session.path):
            sides = both_sides(promise.bid.summary, delivered.summary)
            made = accept(*sides, promise.weights, promise.guarantee)
    except InputError as error:
        return AcceptedNode(node=session.node, acceptance=None, why=str(error))
    return AcceptedNode(node=session.node, acceptance=made, traits=delivered.traits)
