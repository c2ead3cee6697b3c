"""Results come from nodes as lines of base64, and become ordinary result folders.

What a node sends is not trusted: only files of a result folder are unpacked, of bounded size, into an empty folder.
Results that are here already give way to their own continuation only.
"""

from __future__ import annotations

import binascii
import itertools
import os
import shutil
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tarfile import TarError

import msgspec

from milabench_ng.fleet.folder import session_folder
from milabench_ng.fleet.ledger import Collected, NotCollected
from milabench_ng.fleet.nodes import NodeName, SessionName
from milabench_ng.model.errors import InputError
from milabench_ng.records.names import EVENTS, LEDGER, file_digest, is_result_file
from milabench_ng.verification.opening import extract

_KEPT_IN_MEMORY = 1 << 20
_MOST = 1 << 31
"""Packed bytes of one node."""


class Parcel:
    """The archive of one node, as far as it has come."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines: list[bytes] = []
        self._size = 0
        self._written = 0
        self.problem = ""

    def add(self, line: bytes) -> None:
        """One line of base64."""
        self._lines.append(line)
        self._size += len(line)
        if self._size > _KEPT_IN_MEMORY:
            self.write()

    def write(self) -> None:
        """Write what waits; open files are few, and nodes many."""
        try:
            content = b"".join(map(binascii.a2b_base64, self._lines))
        except binascii.Error as error:
            self.problem, content = f"not an archive in base64: {error}", b""
        self._lines, self._size = [], 0
        self._written += len(content)
        if self._written > _MOST:
            self.problem = f"its archive has more than {_MOST} bytes"
        if content and not self.problem:
            with self.file.open("ab") as file:
                file.write(content)


class Pull(msgspec.Struct, frozen=True):
    """The archives of a session, on their way."""

    folder: Path
    session: SessionName
    parcels: dict[NodeName, Parcel]

    def heard(self, node: NodeName, line: bytes) -> None:
        """A line of a node's archive."""
        self.parcels[node].add(line)

    def unpack(self, node: NodeName, problem: str = "") -> Collected | NotCollected:
        """Make the node's folder of its archive, and tell what came of it; ``problem``: why it is not whole."""
        parcel = self.parcels.pop(node)
        parcel.write()
        try:
            if problem or parcel.problem:
                raise InputError(problem or parcel.problem)
            if not parcel.file.exists():
                raise InputError("it sent nothing")
            return _unpack(parcel.file, self.folder, node, self.session)
        except (InputError, OSError) as error:
            return NotCollected(node=node, session=self.session, reason=str(error))
        finally:
            parcel.file.unlink(missing_ok=True)


@contextmanager
def pulling(folder: Path, session: SessionName, nodes: Collection[NodeName]) -> Iterator[Pull]:
    """Room for the archives of ``nodes`` beside their folders, until the context ends."""
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as room:
        yield Pull(folder, session, {node: Parcel(Path(room, f"{node}.tar.gz")) for node in nodes})


def _unpack(archive: Path, folder: Path, node: NodeName, session: SessionName) -> Collected:
    place = session_folder(folder, node, session)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{session}-", dir=place.parent) as room:
        try:
            extract(archive, Path(room), lambda name: _belongs(name, session))
        except (TarError, zlib.error, EOFError, ValueError) as error:
            raise InputError(f"its archive is damaged: {error}") from None
        new = Path(room, session)
        new.mkdir(exist_ok=True)
        files = sum(len(names) for _, _, names in os.walk(new))
        ledger = _content(new / LEDGER)
        _make_way(place, ledger)
        os.rename(new, place)
        log = Path(room, f"{session}.log")
        if log.exists():
            os.replace(log, place.with_name(log.name))
    return Collected(node=node, session=session, files=files, ledger_sha256=file_digest(ledger) if ledger else "")


def _belongs(name: str, session: SessionName) -> bool:
    """Whether a file of an archive is one that a run writes."""
    inner = name.removeprefix(f"{session}/")
    return name == f"{session}.log" or (inner != name and (is_result_file(inner) or inner == EVENTS))


def _make_way(place: Path, ledger: bytes) -> None:
    """Remove an earlier state of the folder that now comes; what is not one keeps its files under another name."""
    if not place.exists():
        return
    if ledger.startswith(_content(place / LEDGER)):
        shutil.rmtree(place)
        return
    names = (place.with_name(f"{place.name}.aside-{number}") for number in itertools.count(1))
    os.rename(place, next(name for name in names if not os.path.lexists(name)))


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""
