"""Writes a result folder so that nothing is lost, to a crash at any moment, a failing disk, or somebody else's hands.

What cannot be written waits in memory, in order, until it can; with a spool folder, a copy goes there at once. What was
written is compared with the disk before anything follows it, and written again if it was damaged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, open_to_write, opened_folder, read_content
from milabench_ng.model.units import counted, format_bytes, utc_iso, utc_now
from milabench_ng.records.ledger import AnyLedgerEvent, Chain, Damaged, Recorded, extend
from milabench_ng.records.names import (
    LEDGER,
    MANIFEST,
    ResultFolder,
    give_name,
    sync_folder,
    temporary_name,
    whole_content,
    write_atomically,
    write_temporary,
)
from milabench_ng.run.persistence.kept import KeptFiles, replace_damaged, set_aside
from milabench_ng.run.persistence.reserve import Reserve
from milabench_ng.run.persistence.spooling import FileContent, append, printed, spool


@dataclasses.dataclass
class _Unit:
    """Files and ledger lines that belong together: all are written, or none."""

    files: Sequence[FileContent]
    lines: bytes
    records: Sequence[str] = ()
    """Those of the files that the lines promise."""
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
        self._kept = KeptFiles(folder.path)
        self._kept.add(LEDGER, ledger, copy=False)
        self._reserve = Reserve()
        self._waiting: list[_Unit] = []
        self._trouble = ""
        self._told: set[str] = set()
        self._going_on: BinaryIO | None = None
        try:
            self._descriptor = self._open()
        except BlockingIOError:
            raise InputError(
                f"{folder.path}: another mnb is writing to it. Wait until it ends, or name another folder"
            ) from None
        except OSError as error:
            raise InputError(
                f"{folder.ledger}: {error.strerror}. No result can be added to this folder. Make it writable, resume "
                "a copy of it, or start a new run in another one"
            ) from None

    def promise(self, manifest: bytes, *events: AnyLedgerEvent) -> None:
        """Write the manifest if there is none. Raises InputError if that fails.

        It precedes the ledger's first line, so that a folder with a line can be resumed.
        """
        try:
            if self.folder.manifest.exists():
                manifest = read_content(self.folder.manifest, LARGE, os.O_NOFOLLOW)
            else:
                write_atomically(self.folder.manifest, manifest)
        except OSError as error:
            raise InputError(f"{self.folder.path}: {error.strerror}. Name another folder") from None
        before = self.chain
        self._queue((), *events)
        if not self.flush():  # nothing goes to a spool folder: the run has not begun
            self.chain, self._waiting = before, []
            if not before.entries:
                self.folder.manifest.unlink(missing_ok=True)
            raise InputError(f"{self.folder.path}: {self._trouble}. Name another folder")
        self._kept.add(MANIFEST, manifest)

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
        """Number of files that could not be written yet, the ledger among them."""
        return sum(len(unit.files) for unit in self._waiting) + bool(self._waiting)

    def has(self, record: Recorded) -> bool:
        """Whether a record is whole: in the folder, as far as it was compared, or in memory."""
        return record.file in self._kept or any(record.file in unit.records for unit in self._waiting)

    def reserve(self, size: int) -> None:
        """Hold ``size`` bytes of the disk, which are given back when something cannot be written without them."""
        try:
            self._reserve.take(self.folder.path, size)
        except OSError as error:
            self.tell_once(
                f"{self.folder.path}: {error.strerror}: {format_bytes(size)} could not be reserved for the next "
                "results, which mnb keeps in memory while they cannot be written. Free some space before the run ends"
            )

    def keep(self, files: Sequence[FileContent], *events: AnyLedgerEvent) -> bool:
        """Write files and ledger events, all or nothing; return whether the disk has them now."""
        with contextlib.suppress(OSError):  # of which writing will tell
            self._at_all_costs(self._mend)
        self._queue(files, *events)
        if self.flush():
            return True
        if self.spool is not None:
            self.rescue(self.spool)
        return False

    def flush(self) -> bool:
        """Try to write what waits; return whether nothing is left."""
        try:
            self._at_all_costs(self._write_all)
        except OSError as error:
            self._say(error.strerror or str(error))
            return False
        self._say("")
        return True

    def adopt(self, lines: bytes, chain: Chain) -> None:
        """Append lines that an earlier session could not write; ``chain`` is the ledger with them."""
        self._append(lines)
        self.chain = chain

    def trust(self, record: Recorded) -> None:
        """Have the record of an earlier session stay as it is, if it is as the ledger says."""
        content = whole_content(self.folder.path / record.file, record.sha256)
        if content is not None:
            self._kept.add(record.file, content)

    def rescue(self, place: Path) -> bool:
        """Write all that waits into ``place``, creating it if necessary; return whether it is all there."""
        self.spool = place
        try:
            for unit in self._waiting:  # in order, like the ledger
                if not unit.spooled:
                    spool(unit.files, unit.lines, place)
                    unit.spooled = True
        except OSError as error:
            self.tell_once(f"{place}: {error.strerror}. Unsaved results exist only in memory")
            return False
        return True

    def printed(self) -> str:
        """All that waits, as lines of JSON that ``--spool`` takes back."""
        waiting = [(unit, (LEDGER, unit.lines)) for unit in self._waiting]
        return printed(one for unit, lines in waiting for one in (*unit.files, lines))

    def tell_once(self, text: str) -> None:
        """Tell it, unless it was told before."""
        if text not in self._told:
            self._told.add(text)
            self.tell(text)

    def close(self) -> None:
        """Release the folder."""
        self._reserve.give_back()
        os.close(self._descriptor)

    def _open(self) -> int:
        """The ledger, locked. Raises OSError; BlockingIOError if another process writes."""
        with opened_folder(self.folder.path) as folder:
            descriptor = open_to_write(self.folder.ledger.name, folder, os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _queue(self, files: Sequence[FileContent], *events: AnyLedgerEvent) -> None:
        """Have files and events written when it is their turn."""
        self.chain, lines = extend(self.chain, utc_iso(utc_now()), events)
        self._waiting.append(_Unit(files, lines, [event.file for event in events if isinstance(event, Recorded)]))

    def _at_all_costs(self, work: Callable[[], None]) -> None:
        """Do ``work``, once more with the space of the reserve if it fails. Raises OSError."""
        try:
            work()
        except OSError:
            if not self._reserve.give_back():
                raise
            work()

    def _write_all(self) -> None:
        self._mend()
        while self._waiting:
            self._write(self._waiting[0])
            self._forget(self._waiting.pop(0))

    def _write(self, unit: _Unit) -> None:
        """Write temporary files, ledger, final names: a crash between any two leaves nothing half done."""
        paths = [self.folder.path / name for name, _ in unit.files]
        try:
            for path, (_, content) in zip(paths, unit.files, strict=True):
                path.parent.mkdir(exist_ok=True)
                write_temporary(path, content)
            for parent in {path.parent for path in paths}:
                sync_folder(parent)  # what the ledger promises is there after a power loss
            self._append(unit.lines)
            unit.lines = b""
            for path in paths:
                give_name(path)
        except OSError:
            for path in paths:
                with contextlib.suppress(OSError):  # the disk is gone, or there is no such file
                    temporary_name(path).unlink()
            raise
        for parent in {path.parent for path in paths}:
            sync_folder(parent)
        for name, content in unit.files:
            if name in unit.records:
                self._kept.add(name, content)

    def _append(self, lines: bytes) -> None:
        """Append lines to the ledger; a partly written one is removed again."""
        append(self._descriptor, lines)
        self._ledger += lines
        self._kept.add(LEDGER, self._ledger, copy=False)

    def _mend(self) -> None:
        """Write again what was removed or changed since it was written; what was found instead gets another name.

        Raises OSError if the disk does not take it.
        """
        done: list[Damaged] = []
        try:
            for name in self._kept.damaged():
                self.folder.logs.mkdir(parents=True, exist_ok=True)
                done.append(self._replace(name))
            self._reopen()
        finally:
            if done:
                self._queue((), *done)
                self.tell(f"{self.folder.path}: {_in_words(done)}")

    def _reopen(self) -> None:
        """Open the ledger that bears its name: it was written again, or somebody put an equal one there."""
        if not os.path.samestat(os.fstat(self._descriptor), self.folder.ledger.lstat()):
            before, self._descriptor = self._descriptor, self._open()
            os.close(before)

    def _replace(self, name: str) -> Damaged:
        path, content = self.folder.path / name, self._ledger if name == LEDGER else self._kept.content(name)
        if content is None:
            aside = set_aside(path)
            self._kept.drop(name)
        else:
            aside = replace_damaged(path, content)
        if name == MANIFEST and self._going_on is not None:
            self._going_on.close()
            self._lock_manifest()
        return Damaged(file=name, aside=aside, restored=content is not None)

    def _lock_manifest(self) -> None:
        self._going_on = self.folder.manifest.open("rb")
        fcntl.flock(self._going_on, fcntl.LOCK_EX)

    def _forget(self, unit: _Unit) -> None:
        """Remove the spooled copies of what is now in place."""
        if unit.spooled and self.spool is not None:
            for name, _ in unit.files:
                (self.spool / name).unlink(missing_ok=True)
            if not any(other.spooled for other in self._waiting):
                (self.spool / LEDGER).unlink(missing_ok=True)

    def _say(self, trouble: str) -> None:
        """Report a change for the worse or the better, once."""
        if trouble and trouble != self._trouble:
            records = counted(sum(len(unit.records) for unit in self._waiting), "record")
            self.tell(f"{self.folder.path}: {trouble}. Writing failed: mnb keeps {records} in memory and retries")
        elif not trouble and self._trouble:
            self.tell(f"{self.folder.path}: writable again; nothing was lost")
        self._trouble = trouble


def _in_words(damaged: Sequence[Damaged]) -> str:
    """What another program did to the folder, and what mnb did about it."""
    shown = [f"{one.file} was {f'changed (see {one.aside})' if one.aside else 'removed'}" for one in damaged[:3]]
    more = f", and {counted(len(damaged) - 3, 'other')}" if len(damaged) > 3 else ""
    lost = sum(not one.restored for one in damaged)
    done = f"{counted(lost, 'record')} could not be restored: mnb repeats the launches" if lost else "Restored"
    return f"changed by another program: {', '.join(shown)}{more}. {done}"
