"""The one writer of a fleet folder's manifest and ledger."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from milabench_ng import __version__
from milabench_ng.fleet.folder import NODES, is_fleet
from milabench_ng.fleet.ledger import FLEET_LEDGER, AnyFleetEvent, FleetSession, check_fleet_chain, next_line
from milabench_ng.fleet.manifest import FleetManifest, encode_fleet_manifest
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, open_to_write, opened_folder, read_content, write_all
from milabench_ng.model.plain import quoted
from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.records.names import FLEET_MANIFEST, file_digest, write_atomically


class FleetWriter:
    """Appends to the ledger, whose lock it holds; every line is on the disk before what it tells of goes on."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError if another process writes, or the ledger was edited."""
        try:
            with opened_folder(folder.resolve()) as opened:  # the user may name a link to it
                self._descriptor = open_to_write(FLEET_LEDGER, opened, os.O_APPEND)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise InputError(f"{folder}: another mnb works on this fleet. Wait until it ends") from None
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}") from None
        content = read_content(folder / FLEET_LEDGER, LARGE, os.O_NOFOLLOW)
        chain = check_fleet_chain(content)
        if chain.problems:
            os.close(self._descriptor)
            raise InputError(f"{folder / FLEET_LEDGER}: {chain.problems[0]}. It was edited, so nothing is added to it")
        os.ftruncate(self._descriptor, len(content) - len(chain.torn))  # what a crash cut short was relied on by nobody
        self._number, self._head = len(chain.entries), chain.head
        self._sessions = sum(isinstance(event, FleetSession) for event in chain.events)

    def begin(self, command_line: tuple[str, ...], manifest: bytes) -> None:
        self._sessions += 1
        self.tell(
            FleetSession(
                number=self._sessions,
                hostname=socket.gethostname(),
                pid=os.getpid(),
                version=__version__,
                command_line=command_line,
                manifest_sha256=file_digest(manifest),
            )
        )

    def tell(self, *events: AnyFleetEvent) -> None:
        """Append events, all at once."""
        lines, utc = b"", utc_iso(utc_now())
        for event in events:
            self._head, line = next_line(self._number, self._head, utc, event)
            self._number += 1
            lines += line
        write_all(self._descriptor, lines)
        os.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def require_new(folder: Path) -> None:
    """Raise InputError for a folder that has something in it."""
    try:
        taken = next(iter(sorted(folder.iterdir())), None)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"-o {folder}: {error.strerror}") from None
    if taken is not None:
        going_on = f", or go on with the fleet in it: mnb fleet resume {quoted(folder)}" if is_fleet(folder) else ""
        raise InputError(f"-o {folder}: already contains {taken.name!r}. Name a new folder{going_on}")


def make_fleet(folder: Path, manifest: FleetManifest) -> None:
    """Make a fleet folder, whose ledger is empty yet. Raises InputError if it is taken or cannot be made."""
    require_new(folder)
    try:
        (folder / NODES).mkdir(parents=True)
        write_atomically(folder.resolve() / FLEET_MANIFEST, encode_fleet_manifest(manifest))
    except OSError as error:
        raise InputError(f"-o {folder}: {error.strerror}") from None
