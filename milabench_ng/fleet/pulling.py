"""Results come from nodes as lines: a mark, a packed folder in base64, then the mark with its SHA-256.

It stays packed. What a node sends is not trusted: whoever opens it takes only files of a result folder from it, of
bounded size. Results that are here already give way to their own continuation only.
"""

from __future__ import annotations

import binascii
import hashlib
import itertools
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from milabench_ng.fleet.folder import PACKED, NodeSession, own_names, session_file
from milabench_ng.fleet.launchers.interface import OUTPUT
from milabench_ng.fleet.ledger import Collected, NotCollected, digest_of
from milabench_ng.fleet.nodes import NodeName, SessionName
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short_end
from milabench_ng.verification.opening import beginning

_MARK = OUTPUT.encode()
_KEPT_IN_MEMORY = 1 << 20
_OF_SUM = 64
"""Digits of a SHA-256."""
_MOST = 1 << 31
"""Packed bytes of one node."""


class Parcel:
    """The packed folder of one node, as far as it has come."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._stated: str | None = None
        """What its SHA-256 should be; empty until it comes. None until the mark has come: before it, anything may."""
        self._sum = hashlib.sha256()
        self._lines: list[bytes] = []
        self._size = 0
        self._written = 0
        self._problem = ""

    def add(self, line: bytes) -> None:
        """What a login shell prints, the mark, one line of base64, or the mark with the hash."""
        if line.startswith(_MARK):
            self._stated = line[len(_MARK) :][: _OF_SUM + 1].decode(errors="backslashreplace").strip()
            return
        if self._stated is None:
            return
        self._lines.append(line)
        self._size += len(line) + 1  # a blank line takes memory, too
        if self._size > _KEPT_IN_MEMORY:
            self._write()

    def close(self) -> str:
        """Write the rest; the SHA-256 of all. Raises InputError if it has not come whole."""
        self._write()
        if not self._problem and not self._written:
            self._problem = "it sent nothing"
        if not self._problem and self._sum.hexdigest() != self._stated:
            self._problem = "its packed folder did not come whole"
        if self._problem:
            raise InputError(self._problem)
        return self._sum.hexdigest()

    def _write(self) -> None:
        """Write what waits; open files are few, and nodes many."""
        try:
            content = b"".join(map(binascii.a2b_base64, self._lines))
        except binascii.Error as error:
            self._problem, content = f"not in base64: {error}", b""
        self._lines, self._size = [], 0
        self._written += len(content)
        if self._written > _MOST:
            self._problem = f"its packed folder has more than {_MOST} bytes"
        if content and not self._problem:
            self._sum.update(content)
            with self.file.open("ab") as file:
                file.write(content)


class Pull(msgspec.Struct, frozen=True):
    """The packed folders of a session, on their way."""

    folder: Path
    session: SessionName
    parcels: dict[NodeName, Parcel]

    def heard(self, node: NodeName, line: bytes) -> None:
        """A line of a node's output."""
        self.parcels[node].add(line)

    def keep(self, node: NodeName, problem: str = "", *, said: str = "") -> Collected | NotCollected:
        """Put what a node sent into its place, and tell what came of it.

        ``problem``: why it is not whole; ``said``: the node's errors, which may say so.
        """
        parcel = self.parcels.pop(node)
        try:
            if problem:
                raise InputError(problem)
            place = session_file(self.folder, node, self.session)
            return _kept(parcel.file, parcel.close(), NodeSession(node, self.session, place))
        except (InputError, OSError) as error:
            own = f" (the node: {short_end(said)})" if said and not problem else ""
            return NotCollected(node=node, session=self.session, reason=f"{error}{own}")
        finally:
            parcel.file.unlink(missing_ok=True)


@contextmanager
def pulling(folder: Path, session: SessionName, nodes: Collection[NodeName]) -> Iterator[Pull]:
    """Room for what ``nodes`` send beside their places, until the context ends."""
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as room:
        yield Pull(folder, session, {node: Parcel(Path(room, f"{node}{PACKED}")) for node in nodes})


def _kept(file: Path, sha256: str, session: NodeSession) -> Collected:
    names = own_names(session.session)
    there = beginning(file, names)
    if not there:
        raise InputError(f"what it sent is not the packed folder of {session.session}")
    log, summary, ledger = (there.get(name, b"") for name in names)
    session.path.parent.mkdir(parents=True, exist_ok=True)
    _make_way(session, ledger)
    with file.open("rb+") as written:
        os.fsync(written)
    os.replace(file, session.path)
    session.path.with_name(names[0]).write_bytes(log)
    session.path.with_name(names[1]).write_bytes(summary)
    return Collected(
        node=session.node,
        session=session.session,
        sha256=sha256,
        ledger_sha256=digest_of(ledger),
        summary_sha256=digest_of(summary),
    )


def _make_way(session: NodeSession, ledger: bytes) -> None:
    """An earlier state of what now comes is replaced; what is not one gets another name."""
    if not session.path.exists() or ledger.startswith(session.read_ledger()):
        return
    names = (session.path.with_name(f"{session.session}.aside-{number}{PACKED}") for number in itertools.count(1))
    os.rename(session.path, next(name for name in names if not os.path.lexists(name)))
