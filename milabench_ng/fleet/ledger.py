"""``fleet.jsonl``: what was done to a fleet, one event per line, chained by hashes like the ledger of a run.

Only the command that starts nodes writes it. What a node did is in the ledger of its own folder; `Collected` names the
hash of that ledger, so that both chains hold together, and those of all that came with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from milabench_ng.fleet.nodes import NodeName, SessionName
from milabench_ng.model.plain import whole_json
from milabench_ng.records.ledger import ChainedLine, CheckedLines, check_lines, digest
from milabench_ng.records.names import file_digest

FLEET_LEDGER = "fleet.jsonl"


class FleetEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="event"):
    """Base of all events."""


class FleetSession(FleetEvent, frozen=True, kw_only=True):
    """A command begins to work on the fleet, at first or for a resume."""

    number: int
    hostname: str
    pid: int
    version: str
    command_line: tuple[str, ...]
    manifest_sha256: str


class Differed(FleetEvent, frozen=True, kw_only=True):
    """Nodes that should be alike differ: ``what``, and which nodes have which value."""

    what: str
    values: dict[str, tuple[NodeName, ...]]


class Clock(FleetEvent, frozen=True, kw_only=True):
    """How well a node's wall clock is known to be set, which a common start relies on."""

    node: NodeName
    synchronized: bool
    offset_s: float
    """What its NTP client is still correcting."""
    error_s: float
    """The most that the clock is off, as its kernel estimates."""
    ahead_s: float = 0.0
    """Of the clock of the host that starts the fleet, at least; negative if it is behind."""


class CommonStart(FleetEvent, frozen=True, kw_only=True):
    """All nodes are to begin a session at one moment of their own clocks."""

    session: SessionName
    at_utc: str


class NodeStarted(FleetEvent, frozen=True, kw_only=True):
    """A node was told to run a session, or to go on with it."""

    node: NodeName
    session: SessionName


class NodeEnded(FleetEvent, frozen=True, kw_only=True):
    """The node's `mnb` did all that it was to do."""

    node: NodeName
    session: SessionName
    status: Literal[0, 1]
    """1: a launch failed."""


class NodeLost(FleetEvent, frozen=True, kw_only=True):
    """The node was not reached, died, or could not run the session to its end."""

    node: NodeName
    session: SessionName
    reason: str


class Collected(FleetEvent, frozen=True, kw_only=True):
    """What a node's session left was pulled. A hash is empty where there is no such file."""

    node: NodeName
    session: SessionName
    sha256: str
    """Of the packed folder."""
    ledger_sha256: str
    """Of the node's ledger."""
    summary_sha256: str
    """Of the summary that the node made."""


def digest_of(content: bytes) -> str:
    """The SHA-256 of a file that was collected; empty for no content."""
    return file_digest(content) if content else ""


class NotCollected(FleetEvent, frozen=True, kw_only=True):
    """The folder could not be pulled."""

    node: NodeName
    session: SessionName
    reason: str


class Retested(FleetEvent, frozen=True, kw_only=True):
    """Nodes were picked for a session of their own, each for a reason."""

    session: SessionName
    nodes: dict[NodeName, str]


class NetworkMeasured(FleetEvent, frozen=True, kw_only=True):
    """Nodes met, and what they showed is in a file."""

    meeting: Literal["screen", "retest", "launches"]
    nodes: tuple[NodeName, ...]
    left: tuple[NodeName, ...]
    """Those of them that did not stay to the end."""
    sha256: str
    """Of the file."""


class FleetInterrupted(FleetEvent, frozen=True, kw_only=True):
    """The command was told to stop."""

    by: str


class FleetFinished(FleetEvent, frozen=True, kw_only=True):
    """The command has done all it could."""

    lost: int
    """Nodes without complete results."""


AnyFleetEvent = (
    FleetSession
    | Differed
    | Clock
    | CommonStart
    | NodeStarted
    | NodeEnded
    | NodeLost
    | Collected
    | NotCollected
    | Retested
    | NetworkMeasured
    | FleetInterrupted
    | FleetFinished
)


class FleetLine(ChainedLine, frozen=True, kw_only=True):
    """One line."""

    what: AnyFleetEvent


class FleetChain(CheckedLines[FleetLine], frozen=True, kw_only=True):
    """The ledger of a fleet."""

    @property
    def events(self) -> tuple[AnyFleetEvent, ...]:
        """What happened, in order."""
        return tuple(entry.what for entry in self.entries)


_decoder = msgspec.json.Decoder(FleetLine)


def check_fleet_chain(content: bytes) -> FleetChain:
    return check_lines(content, _decoder, FleetChain)


def next_line(number: int, head: str, utc: str, event: AnyFleetEvent) -> tuple[str, bytes]:
    """The line of an event, newline included, and the hash that the line after it names. Pure."""
    line = whole_json(FleetLine(number=number, previous=head, utc=utc, what=event)) + b"\n"
    return digest(line), line


NodeState = Literal["pending", "running", "cut off", "ended", "lost"]
"""``cut off``: nobody looks at the node any more. ``ended``: it did all that it was to do; whether its results are here
is `Standing.collected`."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with one session of one node."""

    state: NodeState = "pending"
    reason: str = ""
    """Why it is lost or cut off, or why its folder could not be pulled."""
    failed: bool = False
    """Whether a launch failed."""
    collected: bool = False
    since_utc: str = ""

    @property
    def here(self) -> bool:
        """Whether it ended, and its results are here."""
        return self.state == "ended" and self.collected


Key = tuple[NodeName, SessionName]


def standings(entries: Iterable[FleetLine]) -> Mapping[Key, Standing]:
    """How it stands with each session of each node that was begun or picked, by the last that happened. Pure.

    What is collected later, or not, changes no state, nor since when it is so.
    """
    found: dict[Key, Standing] = {}
    for entry in entries:
        for key, standing in _told(entry.what, found):
            found[key] = msgspec.structs.replace(standing, since_utc=standing.since_utc or entry.utc)
    return found


def _told(event: AnyFleetEvent, known: Mapping[Key, Standing]) -> Iterable[tuple[Key, Standing]]:
    match event:
        case Retested(session=session, nodes=nodes):
            return [((node, session), Standing()) for node in nodes]
        case NodeStarted(node=node, session=session):
            return [((node, session), Standing(state="running"))]
        case NodeEnded(node=node, session=session, status=status):
            return [((node, session), Standing(state="ended", failed=status != 0))]
        case NodeLost(node=node, session=session, reason=reason):
            return [((node, session), Standing(state="lost", reason=reason))]
        case Collected(node=node, session=session):
            before = known.get((node, session), Standing())
            return [((node, session), msgspec.structs.replace(before, collected=True))]
        case NotCollected(node=node, session=session, reason=reason):
            before = known.get((node, session), Standing())
            return [((node, session), msgspec.structs.replace(before, reason=before.reason or reason))]
    return []
