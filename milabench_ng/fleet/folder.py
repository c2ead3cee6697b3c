"""A fleet folder as it was read: manifest, ledger, and for each node what its sessions left.

```text
DIR/fleet.json                              what was asked
DIR/fleet.jsonl                             what was done
DIR/nodes/<node>/<session>.tar.gz           the folder of `mnb jobs`, packed by the node together with the next two
DIR/nodes/<node>/<session>.log              what `mnb jobs` printed there
DIR/nodes/<node>/<session>.summary.json     its numbers, as the node reduced them
```

Packed folders stay packed: to unpack those of a thousand nodes takes minutes. What something else than `mnb fleet run`
brought here may be a plain folder, ``<session>/``.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.fleet.ledger import (
    FLEET_LEDGER,
    Collected,
    FleetChain,
    FleetSession,
    Key,
    Standing,
    check_fleet_chain,
    standings,
)
from milabench_ng.fleet.manifest import LOCAL, FleetManifest, read_fleet_manifest
from milabench_ng.fleet.nodes import LOCK, NODE, SCREEN, SESSION, NodeName, SessionName
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, is_held, is_locked, read_content
from milabench_ng.records.ledger import Chain, Finished
from milabench_ng.records.names import FLEET_MANIFEST, LEDGER
from milabench_ng.verification.opening import beginning, opened

NODES = "nodes"
PACKED = ".tar.gz"
_ASIDE = re.compile(SESSION.removesuffix(r"\Z") + r"\.aside-[1-9][0-9]*")

UNWATCHED = "it may still work: mnb fleet resume continues it"
GONE = "it ended with the command that started it: mnb fleet resume continues it"
"""What is known of a node whose command ended before it had told its end."""
NOT_HERE = "its results were collected, and are gone from this folder"


class NodeSession(msgspec.Struct, frozen=True):
    """A session of a node whose results are here."""

    node: NodeName
    session: SessionName
    path: Path
    """The packed folder, or the folder."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"{self.node} {self.session}"

    def read_ledger(self) -> bytes:
        """The content of its untrusted ledger; empty if there is none, or none that can be read."""
        try:
            if self.path.name.endswith(PACKED):
                own = own_names(self.session)
                if content := beginning(self.path, own).get(own[-1]):
                    return content
                with opened(self.path) as there:  # packed by other means, such as mnb bundle
                    return read_content(there.place / LEDGER, LARGE, os.O_NOFOLLOW)
            return read_content(self.path / LEDGER, LARGE, os.O_NOFOLLOW)
        except (InputError, OSError):
            return b""


class FleetFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet folder. The folders of nodes are only listed: those of a thousand nodes do not fit in memory at once."""

    path: Path
    manifest: FleetManifest
    ledger: FleetChain
    sessions: tuple[NodeSession, ...]
    """In the order of the manifest's nodes, ``screen`` before retests."""
    strangers: tuple[str, ...]
    """Names in ``nodes`` that belong to no node of the manifest, and what no session is called."""
    going_on: bool

    @staticmethod
    def read(path: Path) -> FleetFolder:
        """Read it. Raises InputError if it has no manifest, or one that is not valid."""
        manifest = read_fleet_manifest(path)
        going_on = is_going_on(path)
        found = tuple(_found(path / NODES))
        place = {node: place for place, node in enumerate(manifest.nodes)}
        known = (one for one in found if isinstance(one, NodeSession) and one.node in place)
        return FleetFolder(
            path=path,
            manifest=manifest,
            ledger=read_fleet_ledger(path),
            sessions=tuple(sorted(known, key=lambda one: (place[one.node], _order(one.session)))),
            strangers=tuple(
                sorted({_name(one) for one in found if not isinstance(one, NodeSession) or one.node not in place})
            ),
            going_on=going_on,
        )

    @property
    def standings(self) -> Mapping[Key, Standing]:
        """How it stands with every node's first session, and with the others that were begun or picked."""
        asked = {(node, SCREEN): Standing() for node in self.manifest.nodes}
        found = {**asked, **standings(self.ledger.entries)}
        if self.going_on:
            return found
        here = {(one.node, one.session) for one in self.sessions}
        return {key: self._at_rest(key, one, here) for key, one in found.items()}

    def _at_rest(self, key: Key, told: Standing, here: Collection[Key]) -> Standing:
        """How it stands with a session on which nobody works, and whose results may be gone from ``here``."""
        if told.state == "running":
            return msgspec.structs.replace(told, state="cut off", reason=self._unwatched(key[0]))
        if told.collected and key not in here:
            return msgspec.structs.replace(told, collected=False, reason=NOT_HERE)
        return told

    def _unwatched(self, node: NodeName) -> str:
        """What is known of a node that nobody looks at: one of this machine holds its lock as long as it works."""
        hosts = [event.hostname for event in self.ledger.events if isinstance(event, FleetSession)]
        if self.manifest.launcher != LOCAL or hosts[-1:] != [socket.gethostname()]:
            return UNWATCHED
        try:
            return UNWATCHED if is_locked(Path(self.manifest.node_folder, node, LOCK)) else GONE
        except OSError:
            return UNWATCHED

    @property
    def collected(self) -> Mapping[Key, Collected]:
        """What was last collected of every session."""
        return {(one.node, one.session): one for one in self.ledger.events if isinstance(one, Collected)}


def status_of(chain: Chain) -> Literal[0, 1] | None:
    """How a session ended by its own ledger, 1 if a launch failed; None if launches are missing. Pure."""
    last = next(reversed(chain.events), None)
    if not isinstance(last, Finished) or last.missing:
        return None
    return 1 if last.failed else 0


def is_going_on(path: Path) -> bool:
    """Whether a command works on this fleet: it holds the ledger."""
    return is_held(path / FLEET_LEDGER, os.O_NOFOLLOW)


def is_fleet(path: Path) -> bool:
    """Whether it is a fleet folder, and not one of a run."""
    return os.path.isfile(path / FLEET_MANIFEST)  # which no name makes raise


def listed_sessions(path: Path) -> Iterator[NodeSession]:
    """The sessions of all nodes whose results are there, whatever a manifest says."""
    return (one for one in _found(path / NODES) if isinstance(one, NodeSession))


def misplaced_in(path: Path) -> tuple[str, ...]:
    """What lies where sessions do, and can be none of any fleet: it has another name, or is there twice."""
    return tuple(sorted(one for one in _found(path / NODES) if isinstance(one, str)))


def session_file(path: Path, node: NodeName, session: SessionName) -> Path:
    """Where the packed folder of a node's session lies, or will lie."""
    return path / NODES / node / f"{session}{PACKED}"


def own_names(session: SessionName) -> tuple[str, str, str]:
    """With what the packed folder of a session begins: what its run printed, its summary, and its ledger."""
    return f"{session}.log", f"{session}.summary.json", f"{session}/{LEDGER}"


def read_fleet_ledger(path: Path) -> FleetChain:
    """The untrusted ledger of a fleet; empty if there is none."""
    file = path / FLEET_LEDGER
    if not os.path.lexists(file):
        return FleetChain()
    try:
        return check_fleet_chain(read_content(file, LARGE, os.O_NOFOLLOW))
    except InputError as error:
        return FleetChain(problems=(str(error),))


def _found(nodes: Path) -> Iterator[NodeSession | str]:
    """The sessions below ``nodes``, and the names of what is no session, relative to it."""
    for node in _entries(nodes, folders=True):
        if not re.fullmatch(NODE, node):
            yield node
            continue
        for name, session in _results(nodes / node).items():
            if re.fullmatch(SESSION, session):
                yield NodeSession(node, session, nodes / node / name)
            elif not _ASIDE.fullmatch(session):
                yield f"{node}/{name}"


def _results(node: Path) -> Mapping[str, str]:
    """The packed and plain folders of a node by name, and the session that each is named after."""
    packed = {name: name.removesuffix(PACKED) for name in _entries(node, folders=False) if name.endswith(PACKED)}
    plain = {name: name for name in _entries(node, folders=True)}
    twice = set(packed.values()) & set(plain)
    return packed | plain | {name: f"{name} beside {name}{PACKED}" for name in twice}


def _entries(path: Path, *, folders: bool) -> tuple[str, ...]:
    """The folders or files in it that are no links and not hidden; none if there is no such folder."""
    try:
        with os.scandir(path) as entries:
            return tuple(
                one.name
                for one in entries
                if (one.is_dir if folders else one.is_file)(follow_symlinks=False) and not one.name.startswith(".")
            )
    except OSError:
        return ()


def _order(session: SessionName) -> tuple[bool, str, int]:
    kind, _, number = session.partition("-")
    return session != SCREEN, kind, int(number or 0)


def _name(one: NodeSession | str) -> str:
    return one if isinstance(one, str) else f"{one.node}/{one.session}"
