"""Where results wait that cannot be written into their folder: a spool folder, or lines of JSON on standard error."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import open_to_write, opened_folder, write_all
from milabench_ng.model.plain import plain_json
from milabench_ng.records.names import LEDGER, write_atomically

FileContent = tuple[str, bytes]
"""A file: its path relative to the result folder, and its content."""


class _Printed(msgspec.Struct, frozen=True):
    """A file of a result folder in one line of JSON; of the ledger, the lines that it lacks."""

    mnb_file: str
    text: str


_PRINTED = b'{"mnb_file":'
_decoder = msgspec.json.Decoder(_Printed)


def printed(files: Iterable[FileContent]) -> str:
    """The lines of JSON for ``files``; bytes that are not UTF-8, which only logs have, are escaped."""
    texts = ((name, content.decode(errors="backslashreplace")) for name, content in files if content)
    lines = (json.dumps({"mnb_file": name, "text": text}, separators=(",", ":")) for name, text in texts)
    return "\n".join(map(plain_json, lines))  # ASCII, for any terminal


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


def spooled(place: Path) -> dict[str, bytes]:
    """What is in a spool folder, or in a file that has the lines of `printed` among others.

    Empty if there are none. Raises InputError for incomplete lines.
    """
    if place.is_file():
        return _saved(place)
    if not (place / LEDGER).exists():
        return {}
    paths = (path for path in (*place.iterdir(), *place.glob("logs/*")) if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


def forget(place: Path, files: Mapping[str, bytes]) -> None:
    """Remove from a spool folder what has its place now; a file of lines is the user's."""
    if place.is_dir():
        for name in files:
            (place / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (place / "logs").rmdir()


def _saved(place: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for line in place.read_bytes().split(b"\n"):
        if line.startswith(_PRINTED):
            try:
                one = _decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise InputError(f"--spool {place}: a line is incomplete: {error}") from None
            found[one.mnb_file] = found.get(one.mnb_file, b"") + one.text.encode()
    if not found:
        raise InputError(f"--spool {place}: no saved results found in this file")
    return found
