"""Writes a result folder so that nothing is lost, neither to a crash at any moment nor to a failing disk.

What cannot be written waits in memory, in order, until it can; with a spool folder, a copy goes there at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from milabench_ng.errors import InputError
from milabench_ng.files import open_to_write, opened_folder
from milabench_ng.records.ledger import AnyLedgerEvent, Chain, extend
from milabench_ng.records.names import (
    LEDGER,
    ResultFolder,
    give_name,
    sync_folder,
    temporary_name,
    write_atomically,
    write_temporary,
)
from milabench_ng.units import utc_iso, utc_now

FileContent = tuple[str, bytes]
"""A file: its path relative to the result folder, and its content."""


@dataclasses.dataclass
class _Unit:
    """Files and ledger lines that belong together: all are written, or none."""

    files: Sequence[FileContent]
    lines: bytes
    spooled: bool = False


class ResultWriter:
    """The one writer of a result folder. Holds a lock on its ledger."""

    def __init__(self, folder: ResultFolder, ledger: bytes, chain: Chain, spool: Path | None) -> None:
        """``ledger``: the file's content; ``chain``: the same, parsed. Raises InputError if another process writes."""
        self.folder = folder
        self.chain = chain
        self.spool = spool
        self.tell: Callable[[str], None] = lambda _: None
        """Called when the disk fails, and when it works again."""
        self._ledger = ledger
        self._manifest = b""
        self._waiting: list[_Unit] = []
        self._trouble = ""
        self._spool_told = False
        self._going_on: BinaryIO | None = None
        self._open()

    def promise(self, manifest: bytes, *events: AnyLedgerEvent) -> None:
        """Write the manifest; it is rewritten if it is deleted. Raises InputError if that fails.

        It precedes the ledger's first line, so that a folder with a line can be resumed.
        """
        self._manifest = manifest
        try:
            if not self.folder.manifest.exists():
                write_atomically(self.folder.manifest, manifest)
        except OSError as error:
            raise InputError(f"{self.folder.path}: {error.strerror}; name another folder") from None
        if not self.keep((), *events):
            raise InputError(f"{self.folder.path}: {self._trouble}; name another folder")

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Lock the manifest, and each that replaces it, so that a reader can tell that the run is in progress."""
        self._lock_manifest()
        try:
            yield
        finally:
            assert self._going_on is not None
            self._going_on.close()
            self._going_on = None

    @property
    def waiting(self) -> int:
        """Number of files that could not be written yet."""
        return sum(len(unit.files) or 1 for unit in self._waiting)

    def keep(self, files: Sequence[FileContent], *events: AnyLedgerEvent) -> bool:
        """Write files and ledger events, all or nothing; return whether the disk has them now."""
        self.chain, lines = extend(self.chain, utc_iso(utc_now()), events)
        unit = _Unit(files, lines)
        self._waiting.append(unit)
        if self.flush():
            return True
        self._spool(unit)
        return False

    def flush(self) -> bool:
        """Try to write what waits; return whether nothing is left."""
        try:
            while self._waiting:
                self._write(self._waiting[0])
                self._forget(self._waiting.pop(0))
        except OSError as error:
            self._say(f"{self.folder.path}: {error.strerror}: {self.waiting} files wait in memory for better times")
            return False
        self._say("")
        return True

    def adopt(self, lines: bytes, chain: Chain) -> None:
        """Append lines that an earlier session could not write; ``chain`` is the ledger with them."""
        self._append(_Unit((), lines))
        self.chain = chain

    def rescue(self, place: Path) -> Path:
        """Write all that waits into ``place``, creating it if necessary."""
        place.mkdir(parents=True, exist_ok=True)
        for unit in self._waiting:
            if not (unit.spooled and place == self.spool):
                _spool(unit, place)
        return place

    def close(self) -> None:
        """Release the folder."""
        os.close(self._descriptor)

    def _open(self) -> None:
        try:
            with opened_folder(self.folder.path) as folder:
                self._descriptor = open_to_write(self.folder.ledger.name, folder, os.O_APPEND)
        except OSError as error:
            raise InputError(f"{self.folder.ledger}: {error.strerror}; no result can be added to this folder") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise InputError(
                f"{self.folder.path}: another mnb writes into it; wait for its end, or name another folder"
            ) from None

    def _write(self, unit: _Unit) -> None:
        """Write temporary files, ledger, final names: a crash between any two leaves nothing half done."""
        self._find()
        paths = [self.folder.path / name for name, _ in unit.files]
        try:
            for path, (_, content) in zip(paths, unit.files, strict=True):
                path.parent.mkdir(exist_ok=True)
                write_temporary(path, content)
            for parent in {path.parent for path in paths}:
                sync_folder(parent)  # what the ledger promises is there after a power loss
            self._append(unit)
            for path in paths:
                give_name(path)
        except OSError:
            for path in paths:
                with contextlib.suppress(OSError):  # the disk is gone, or there is no such file
                    temporary_name(path).unlink()
            raise
        for parent in {path.parent for path in paths}:
            sync_folder(parent)

    def _append(self, unit: _Unit) -> None:
        """Append the unit's lines to the ledger, once; a partly written line is removed again."""
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, unit.lines)
            if written < len(unit.lines):
                os.write(self._descriptor, unit.lines[written:])  # raises the reason
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise
        self._ledger += unit.lines
        unit.lines = b""

    def _find(self) -> None:
        """Open the ledger, rewriting it if it was deleted."""
        try:
            there = os.stat(self.folder.ledger)
        except FileNotFoundError:
            there = None
        if there is not None and os.path.samestat(there, os.fstat(self._descriptor)):
            return
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder.ledger, self._ledger)
        write_atomically(self.folder.manifest, self._manifest)
        os.close(self._descriptor)
        self._open()
        if self._going_on is not None:
            self._going_on.close()
            self._lock_manifest()
        self.tell(f"{self.folder.path}: was removed during the run; what was in it is gone, what comes is written anew")

    def _lock_manifest(self) -> None:
        self._going_on = self.folder.manifest.open("rb")
        fcntl.flock(self._going_on, fcntl.LOCK_EX)

    def _spool(self, unit: _Unit) -> None:
        if self.spool is None:
            return
        try:
            self.spool.mkdir(parents=True, exist_ok=True)
            _spool(unit, self.spool)
            unit.spooled = True
        except OSError as error:
            if not self._spool_told:
                self.tell(f"--spool {self.spool}: {error.strerror}: what waits is in memory only")
            self._spool_told = True

    def _forget(self, unit: _Unit) -> None:
        """Remove the spooled copies of what is now in place."""
        if unit.spooled and self.spool is not None:
            for name, _ in unit.files:
                (self.spool / name).unlink(missing_ok=True)
            if not any(other.spooled for other in self._waiting):
                (self.spool / LEDGER).unlink(missing_ok=True)

    def _say(self, trouble: str) -> None:
        """Report a change for the worse or the better, once."""
        kind = trouble.partition(": ")[2].partition(":")[0]
        if kind and kind != self._trouble:
            self.tell(trouble)
        elif not kind and self._trouble:
            self.tell(f"{self.folder.path}: can be written again; nothing was lost")
        self._trouble = kind


def _spool(unit: _Unit, place: Path) -> None:
    """Write files under their final names, and the ledger lines to append."""
    for name, content in unit.files:
        (place / name).parent.mkdir(exist_ok=True)
        write_atomically(place / name, content)
    with opened_folder(place) as folder, open(open_to_write(LEDGER, folder, os.O_APPEND), "ab") as ledger:
        ledger.write(unit.lines)
        ledger.flush()
        os.fsync(ledger.fileno())
