"""Makes a fleet folder of result folders that something else than `mnb fleet run` brought together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from milabench_ng import __version__
from milabench_ng.fleet.folder import FleetFolder, NodeSession, listed_sessions
from milabench_ng.fleet.ledger import AnyFleetEvent, Collected, FleetFinished, NodeEnded, NodeLost
from milabench_ng.fleet.manifest import FLEET_MANIFEST, FleetManifest, encode_fleet_manifest, new_fleet_id
from milabench_ng.fleet.nodes import SCREEN, NodeName
from milabench_ng.fleet.retesting import missing_nodes
from milabench_ng.fleet.summaries import keep_summaries, ledger_digest
from milabench_ng.fleet.writer import FleetWriter
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import write_atomically

LAUNCHER = "none"
"""What the manifest says: nobody can be reached."""


def adopt(folder: Path, expected: tuple[NodeName, ...], command_line: tuple[str, ...]) -> FleetFolder:
    """Write the manifest and ledger of a fleet into ``folder``, whose ``nodes/<node>/screen`` are result folders.

    ``expected``: nodes of which one without results is lost. Raises InputError if there are no results, or a fleet.
    """
    if os.path.lexists(folder / FLEET_MANIFEST):
        raise InputError(f"{folder}: it is a fleet folder already. See mnb fleet status {folder}")
    sessions = [one for one in listed_sessions(folder) if one.session == SCREEN]
    first = next((read for one in sessions if (read := one.read().manifest) is not None), None)
    if first is None:
        raise InputError(f"{folder}: no results of nodes. They must lie in {folder}/nodes/<node>/{SCREEN}")
    nodes = tuple(dict.fromkeys((*expected, *sorted(one.node for one in sessions))))
    write_atomically(folder.resolve() / FLEET_MANIFEST, encode_fleet_manifest(_manifest(first, nodes, command_line)))
    with FleetWriter(folder) as writer:
        writer.begin(command_line)
        writer.tell(*_events(sessions, nodes))
        writer.tell(FleetFinished(lost=len(missing_nodes(FleetFolder.read(folder)))))
    found = FleetFolder.read(folder)
    keep_summaries(found)
    return found


def _manifest(of_node: Manifest, nodes: tuple[NodeName, ...], command_line: tuple[str, ...]) -> FleetManifest:
    return FleetManifest(
        fleet_id=new_fleet_id(),
        version=__version__,
        created_utc=utc_iso(utc_now()),
        command_line=command_line,
        suite=of_node.plan.suite,
        profile=of_node.profile,
        nodes=nodes,
        launcher=LAUNCHER,
        mnb=(),
        node_folder="",
    )


def _events(sessions: Iterable[NodeSession], nodes: Iterable[NodeName]) -> Iterator[AnyFleetEvent]:
    there = {one.node: one for one in sessions}
    for node in nodes:
        if node not in there:
            yield NodeLost(node=node, session=SCREEN, reason="no results of it were brought together")
            continue
        one = there[node]
        if (status := one.status) is not None:
            yield NodeEnded(node=node, session=SCREEN, status=1 if status else 0)
        else:
            yield NodeLost(node=node, session=SCREEN, reason="its run did not end: launches are missing")
        yield Collected(
            node=node,
            session=SCREEN,
            files=sum(len(names) for _, _, names in os.walk(one.path)),
            ledger_sha256=ledger_digest(one),
        )
