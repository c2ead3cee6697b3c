"""Where results wait that cannot be written into their folder: a spool folder, or lines of JSON on standard error."""

from __future__ import annotations

import contextlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import absent, open_to_write, opened_folder, write_all
from milabench_ng.model.plain import plain, plain_json
from milabench_ng.records.names import LEDGER, write_atomically
from milabench_ng.records.output_files import check_target_folder

FileContent = tuple[str, bytes]
"""A file: its path relative to the result folder, and its content."""


class _Printed(msgspec.Struct, frozen=True):
    """A file of a result folder in one line of JSON; of the ledger, the lines that it lacks."""

    mnb_file: str
    text: str | None = None
    base64: str | None = None
    """Of a file that is not UTF-8, such as the series."""

    @property
    def content(self) -> bytes:
        """What the file holds. Raises ValueError for what is not base64."""
        return (self.text or "").encode() if self.base64 is None else b64decode(self.base64, validate=True)


_PRINTED = b'{"mnb_file":'
_decoder = msgspec.json.Decoder(_Printed)


def printed(files: Iterable[FileContent]) -> str:
    """The lines of JSON for ``files``."""
    lines = (json.dumps(_line(name, content), separators=(",", ":")) for name, content in files if content)
    return "\n".join(map(plain_json, lines))  # ASCII, for any terminal


def _line(name: str, content: bytes) -> dict[str, str]:
    try:
        return {"mnb_file": name, "text": content.decode()}
    except UnicodeDecodeError:
        return {"mnb_file": name, "base64": b64encode(content).decode()}


def spool(files: Sequence[FileContent], lines: bytes, place: Path) -> None:
    """Write files under their final names, and the ledger lines to append: these whole, or not at all."""
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files:
        (place / name).parent.mkdir(exist_ok=True)
        write_atomically(place / name, content)
    with opened_folder(place) as folder, open(open_to_write(LEDGER, folder, os.O_APPEND), "ab", buffering=0) as ledger:
        append(ledger.fileno(), lines)


def append(descriptor: int, lines: bytes) -> None:
    """Append to a file and flush it to disk; what was written of it is removed again if that fails (OSError)."""
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, lines)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def require_spool(place: Path) -> None:
    """Raise InputError for what neither holds results to bring back nor is an empty folder for more."""
    if not os.path.exists(place):
        raise InputError(
            f"--spool {plain(place)}: {absent(place)}. The run that could not save its results printed the name of its "
            "spool folder. For a new spool folder, create it first"
        )
    if place.is_file():
        _saved(place)
        return
    if os.path.exists(place / LEDGER):
        return
    check_target_folder(place, "--spool")
    if (one := next(place.iterdir(), None)) is not None:
        raise InputError(
            f"--spool {plain(place)}: contains {plain(one.name)!r}, but no {LEDGER}: no run has saved results there. "
            "Name the spool folder that the run printed, or an empty folder"
        )


def spooled(place: Path) -> dict[str, bytes]:
    """What is in a spool folder, or in a file that has the lines of `printed` among others.

    Empty if there are none. Raises InputError for incomplete lines.
    """
    if place.is_file():
        return _saved(place)
    if not (place / LEDGER).exists():
        return {}
    paths = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


def forget(place: Path, files: Collection[str]) -> None:
    """Remove from a spool folder what has its place now; a file of lines is the user's."""
    if place.is_dir():
        for name in files:
            (place / name).unlink(missing_ok=True)
        for folder in {(place / name).parent for name in files} - {place}:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _saved(place: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for line in place.read_bytes().split(b"\n"):
        if line.startswith(_PRINTED):
            try:
                one = _decoder.decode(line)
                found[one.mnb_file] = found.get(one.mnb_file, b"") + one.content
            except (msgspec.MsgspecError, ValueError) as error:
                raise InputError(
                    f"--spool {place}: a line is incomplete: {error}. Save all that the run printed"
                ) from None
    if not found:
        raise InputError(f"--spool {place}: no saved results found in this file. Save all that the run printed")
    return found
