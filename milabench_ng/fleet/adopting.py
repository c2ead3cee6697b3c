"""Makes a fleet folder of results that something else than `mnb fleet run` brought together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from milabench_ng import __version__
from milabench_ng.analysis.summary.folder import decode_summary
from milabench_ng.fleet.folder import (
    NODES,
    PACKED,
    FleetFolder,
    NodeSession,
    listed_sessions,
    misplaced_in,
    own_names,
    status_of,
)
from milabench_ng.fleet.ledger import (
    FLEET_LEDGER,
    AnyFleetEvent,
    Collected,
    FleetFinished,
    NodeEnded,
    NodeLost,
    digest_of,
)
from milabench_ng.fleet.manifest import ADOPTED, FleetManifest, encode_fleet_manifest, new_fleet_id
from milabench_ng.fleet.nodes import SCREEN, NodeName, nodes_by_value
from milabench_ng.fleet.ran_profile import RanProfile
from milabench_ng.fleet.summaries import encoded, workers
from milabench_ng.fleet.writer import FleetWriter
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_content, require_folder
from milabench_ng.model.plain import names_of, plain, quoted
from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.records.ledger import Started, check_chain
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import FLEET_MANIFEST, MANIFEST, write_atomically
from milabench_ng.verification.folder_files import sha256_of
from milabench_ng.verification.opening import opened


def adopt(folder: Path, expected: tuple[NodeName, ...], command_line: tuple[str, ...]) -> FleetFolder:
    """Write the manifest and ledger of a fleet into ``folder``, whose ``nodes/<node>/<session>`` are result folders.

    ``expected``: nodes of which one without results is lost. Raises InputError if there are no results, those of
    different profiles, or a fleet.
    """
    if os.path.lexists(folder / FLEET_MANIFEST):
        raise InputError(f"{folder}: it is a fleet folder already. See mnb fleet status {quoted(folder)}")
    sessions = sorted(listed_sessions(folder), key=lambda one: (one.node, one.session != SCREEN, one.session))
    first = next(filter(None, map(_manifest_of, sessions)), None)
    if first is None:
        require_folder(folder, "Name the folder that has the results of nodes")
        where = f"{folder}/{NODES}/NODE/{SCREEN} (or {SCREEN}{PACKED}){_elsewhere(folder, sessions)}"
        raise InputError(f"{folder}: no results of nodes in {where}")
    if misplaced := misplaced_in(folder):
        raise InputError(
            f"{folder}/{NODES}: {names_of(misplaced)} cannot be of a fleet: a node has one result of each session, "
            f"such as NODE/{SCREEN} or NODE/{SCREEN}{PACKED}. Keep one, and move all else away"
        )
    nodes = tuple(dict.fromkeys((*expected, *(one.node for one in sessions))))
    _keep_summaries(sessions)
    _require_one_profile(folder, sessions)
    events = tuple(_events(sessions, nodes))
    manifest = encode_fleet_manifest(_manifest(first, nodes, command_line))
    (folder / FLEET_LEDGER).unlink(missing_ok=True)  # of an adoption that was cut short
    with FleetWriter(folder) as writer:
        writer.begin(command_line, manifest)
        writer.tell(*events)
        writer.tell(FleetFinished(lost=sum(isinstance(event, NodeLost) for event in events)))
        write_atomically(folder.resolve() / FLEET_MANIFEST, manifest)  # the last: now it is a fleet
    return FleetFolder.read(folder)


def _elsewhere(folder: Path, sessions: Sequence[NodeSession]) -> str:
    """Where results lie instead; empty if there are none."""
    if folder.name == NODES and any(listed_sessions(folder.parent)):
        return f". Give the folder that it is in: {plain(folder.parent)}"
    depths = [["*"] * depth for depth in range(_DEEPEST)]
    manifests = (path.parent for depth in depths for path in sorted(folder.glob("/".join((*depth, MANIFEST)))))
    bundles = (path for depth in depths for path in sorted(folder.glob("/".join((*depth, f"*{PACKED}")))))
    known = [session.path for session in sessions]
    place = next((one for one in chain(manifests, bundles) if one not in known), None)
    return "" if place is None else f". Some are in {plain(place)}: move them"


_DEEPEST = 6
"""Folders, down to which results are looked for."""


def _manifest_of(session: NodeSession) -> Manifest | None:
    """Of a session that can be read; of one that cannot, the report tells why."""
    try:
        with opened(session.path) as there:
            return there.folder.manifest
    except InputError:
        return None


def _keep_summaries(sessions: Sequence[NodeSession]) -> None:
    """Make those that did not come with their results, or came with earlier ones."""
    wanting = [one for one in sessions if not _is_kept(one)]
    with workers(len(wanting)) as each:
        for one, (content, _) in zip(wanting, each(encoded, wanting), strict=True):
            if content is not None:
                write_atomically(_summary_file(one), content)


def _is_kept(session: NodeSession) -> bool:
    """Whether it has a summary, and that of the run that lies there: results may have been replaced by others, or by
    all of them, since an earlier adoption."""
    ledger = check_chain(session.read_ledger())
    begun = tuple(event.run_id for event in ledger.events if isinstance(event, Started))
    try:
        stated = decode_summary(_content(_summary_file(session)), session.name)
    except InputError:
        return False
    return stated.runs == begun and not (stated.interrupted and status_of(ledger) is not None)


def _require_one_profile(folder: Path, sessions: Iterable[NodeSession]) -> None:
    """Raise InputError, with the nodes, if they ran different ones. A node that cannot be read is lost anyway."""
    ran: dict[str, RanProfile] = {}
    for one in sessions:
        with suppress(InputError):
            name = one.node if one.session == SCREEN else one.name
            ran[name] = RanProfile.of(decode_summary(_content(_summary_file(one)), one.name))
    by_profile = nodes_by_value({name: one.words for name, one in ran.items() if one.sha256})
    if len(by_profile) > 1:
        told = "; ".join(f"{profile} on {names_of(nodes)}" for profile, nodes in by_profile.items())
        raise InputError(
            f"{folder}: its nodes ran different profiles, so they cannot be compared: {told}. Move the nodes of each "
            "profile to a folder of its own, and adopt each"
        )


def _summary_file(session: NodeSession) -> Path:
    return session.path.with_name(own_names(session.session)[1])


def _manifest(of_node: Manifest, nodes: tuple[NodeName, ...], command_line: tuple[str, ...]) -> FleetManifest:
    return FleetManifest(
        fleet_id=new_fleet_id(),
        version=__version__,
        created_utc=utc_iso(utc_now()),
        command_line=command_line,
        suite=of_node.plan.suite,
        profile=of_node.profile,
        nodes=nodes,
        launcher=ADOPTED,
        mnb=(),
        node_folder="",
    )


def _events(sessions: Sequence[NodeSession], nodes: Iterable[NodeName]) -> Iterator[AnyFleetEvent]:
    screened = {one.node for one in sessions if one.session == SCREEN}
    for node in nodes:
        if node not in screened:
            yield NodeLost(node=node, session=SCREEN, reason="no results of it were brought together")
    for one in sessions:
        ledger = one.read_ledger()
        if (status := status_of(check_chain(ledger))) is not None:
            yield NodeEnded(node=one.node, session=one.session, status=status)
        else:
            yield NodeLost(node=one.node, session=one.session, reason="its run did not end: launches are missing")
        yield Collected(
            node=one.node,
            session=one.session,
            sha256=sha256_of(one.path) if one.path.name.endswith(PACKED) else "",
            ledger_sha256=digest_of(ledger),
            summary_sha256=digest_of(_content(_summary_file(one))),
        )


def _content(file: Path) -> bytes:
    """Of a file that is no link; empty if there is none."""
    try:
        return read_content(file, LARGE, os.O_NOFOLLOW)
    except InputError:
        return b""
