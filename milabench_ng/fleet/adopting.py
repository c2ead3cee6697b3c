"""Makes a fleet folder of result folders that something else than `mnb fleet run` brought together."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from milabench_ng import __version__
from milabench_ng.fleet.folder import FleetFolder, NodeSession, listed_sessions
from milabench_ng.fleet.ledger import AnyFleetEvent, Collected, FleetFinished, FleetSession, NodeEnded, NodeLost
from milabench_ng.fleet.manifest import FLEET_MANIFEST, FleetManifest, encode_fleet_manifest
from milabench_ng.fleet.nodes import SCREEN, NodeName
from milabench_ng.fleet.retesting import missing_nodes
from milabench_ng.fleet.summaries import keep_summaries, ledger_digest
from milabench_ng.fleet.writer import FleetWriter
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.records.ledger import Finished
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import file_digest, write_atomically
from milabench_ng.records.reading import read_ledger

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
    made = encode_fleet_manifest(_manifest(first, nodes, command_line))
    write_atomically(folder.resolve() / FLEET_MANIFEST, made)
    with FleetWriter(folder) as writer:
        for event in _events(sessions, nodes, command_line, file_digest(made)):
            writer.tell(event)
        writer.tell(FleetFinished(lost=len(missing_nodes(FleetFolder.read(folder)))))
    found = FleetFolder.read(folder)
    keep_summaries(found)
    return found


def _manifest(of_node: Manifest, nodes: tuple[NodeName, ...], command_line: tuple[str, ...]) -> FleetManifest:
    now = utc_now()
    return FleetManifest(
        fleet_id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}",
        version=__version__,
        created_utc=utc_iso(now),
        command_line=command_line,
        suite=of_node.plan.suite,
        profile=of_node.profile,
        nodes=nodes,
        launcher=LAUNCHER,
        mnb=(),
        node_folder="",
    )


def _events(
    sessions: Iterable[NodeSession], nodes: Iterable[NodeName], command_line: tuple[str, ...], manifest_sha256: str
) -> Iterator[AnyFleetEvent]:
    yield FleetSession(
        number=1,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        command_line=command_line,
        manifest_sha256=manifest_sha256,
    )
    there = {one.node: one for one in sessions}
    for node in nodes:
        if node not in there:
            yield NodeLost(node=node, session=SCREEN, reason="no results of it were brought together")
            continue
        one = there[node]
        last = next(reversed(read_ledger(one.path).events), None)
        if isinstance(last, Finished) and not last.missing:
            yield NodeEnded(node=node, session=SCREEN, status=1 if last.failed else 0)
        else:
            yield NodeLost(node=node, session=SCREEN, reason="its run did not end: launches are missing")
        yield Collected(
            node=node,
            session=SCREEN,
            files=sum(len(names) for _, _, names in os.walk(one.path)),
            ledger_sha256=ledger_digest(one),
        )
