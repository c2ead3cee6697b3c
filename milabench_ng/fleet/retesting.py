"""Which nodes a fleet runs again, and why: the suspicious ones of its screen, with some others as controls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.ledger import Collected, Retested, Standing
from milabench_ng.fleet.measuring import results_of
from milabench_ng.fleet.network.meetings import meetings_left
from milabench_ng.fleet.nodes import SCREEN, NodeName, SessionName, retest
from milabench_ng.fleet.summaries import summaries
from milabench_ng.fleet.verdicts.screening import Suspicion, suspicious

CONTROL = "control"
"""Why a node that is not suspicious is run again."""


def picked(fleet: FleetFolder) -> Mapping[NodeName, str]:
    """The nodes to run again, each with its reason: those that were picked before, and of those screened since, others.

    To pick these, all results are read.
    """
    if not fleet.manifest.retests:
        return {}
    before: dict[NodeName, str] = {}
    late: set[NodeName] = set()
    for event in fleet.ledger.events:
        if isinstance(event, Retested):
            before |= event.nodes
            late.clear()
        elif isinstance(event, Collected) and event.session == SCREEN:
            late.add(event.node)
    if not late:
        return before
    screening = suspicious(results_of(fleet, summaries(fleet), Scale()).measured, tried=before)
    new = {one.node: _why(one) for one in screening.suspicious if one.node in late and one.node not in before}
    return before | new | dict.fromkeys(screening.controls if new else (), CONTROL)


def nodes_left(fleet: FleetFolder) -> tuple[NodeName, ...]:
    """The nodes with something to run: their first session, a retest, or a meeting, which is of all."""
    if meetings_left(fleet):
        return fleet.manifest.nodes
    left = {*missing_nodes(fleet), *(node for nodes in retests_left(fleet, picked(fleet)).values() for node in nodes)}
    return tuple(node for node in fleet.manifest.nodes if node in left)


def retests_left(fleet: FleetFolder, nodes: Iterable[NodeName]) -> Mapping[SessionName, tuple[NodeName, ...]]:
    """The sessions that are missing of ``nodes``, which are those that are run again."""
    standings, pending = fleet.standings, Standing()
    sessions = map(retest, range(1, fleet.manifest.retests + 1))
    left = {
        session: tuple(node for node in nodes if not standings.get((node, session), pending).here)
        for session in sessions
    }
    return {session: missing for session, missing in left.items() if missing}


def missing_nodes(fleet: FleetFolder) -> tuple[NodeName, ...]:
    """The nodes whose first session did not end, or is not here."""
    standings = fleet.standings
    return tuple(node for node in fleet.manifest.nodes if not standings[node, SCREEN].here)


def _why(one: Suspicion) -> str:
    """``may be slow in vae, device 3, and 2 more; failed: lstm``."""
    told = [f"failed: {', '.join(one.failed)}"] if one.failed else []
    if one.columns:
        more = len(one.columns) - 1
        told.insert(0, f"may be slow in {one.columns[0].words}{f', and {more} more' if more else ''}")
    return "; ".join(told)
