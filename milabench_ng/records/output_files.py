"""Writes the files that a user asks for: whole or not at all, and never over evidence.

A manifest, a ledger and a record exist once; a report can be made again.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import absent, nearest, why_unwritable
from milabench_ng.model.plain import plain, short
from milabench_ng.records.names import EVENTS, LEDGER, MANIFEST, RECORD_NAME, write_atomically


def check_target(path: Path, option: str, *, force: bool = False) -> None:
    """Raise InputError if ``path``, which ``option`` names, cannot be written, holds evidence, or, unless ``force`` is
    set, is a file that exists."""
    if os.path.isdir(path):
        raise InputError(f"{option} {short(path)}: this is a folder. Name a file")
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe keeps nothing
        return
    if os.path.isfile(path):
        name = os.path.basename(os.path.realpath(path))
        if name in (MANIFEST, LEDGER, EVENTS) or RECORD_NAME.fullmatch(name):
            raise InputError(f"{option} {short(path)}: files of a run are never overwritten. Name another file")
        if not force:
            raise InputError(f"{option} {short(path)}: the file exists. Name another one, or pass --force")
    folder = Path(os.path.realpath(path)).parent
    if not os.path.exists(folder):  # which no name makes raise
        raise InputError(f"{option} {short(path)}: {absent(path)}. Create it, or name another file")
    if why := why_unwritable(folder):
        raise InputError(f"{option} {short(path)}: {plain(folder)} is not writable ({why}). Name another file")


def check_target_folder(path: Path, option: str) -> None:
    """Raise InputError if ``path``, which ``option`` names, is no folder that files can be written into, nor a new
    one."""
    there = nearest(path)
    if os.path.islink(path) and not os.path.exists(path):
        raise InputError(f"{option} {short(path)}: this is a link to nothing. Name another folder")
    if not os.path.isdir(there):
        what = "this" if there == path.absolute() else plain(there)
        raise InputError(f"{option} {short(path)}: {what} is not a folder. Name another one")
    if why := why_unwritable(there):
        raise InputError(f"{option} {short(path)}: {plain(there)} is not writable ({why}). Name another folder")


@contextmanager
def written(path: Path, option: str, *, force: bool = False) -> Iterator[TextIO]:
    """A stream whose text becomes the file ``path`` when the context ends without an error.

    Raises InputError, which names ``option``, for a file that must not be overwritten or cannot be written.
    """
    check_target(path, option, force=force)
    content = io.StringIO()
    yield content
    write_output(path, content.getvalue().encode(), option, force=force)


def write_output(path: Path, content: bytes, option: str, *, force: bool = False) -> None:
    """Write the file ``path``, whole or not at all; a device or a pipe is written to, and never replaced."""
    check_target(path, option, force=force)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with path.open("wb", buffering=0) as stream:
                stream.write(content)
        else:
            write_atomically(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise InputError(f"{option} {short(path)}: {error.strerror}. Name another file") from None
