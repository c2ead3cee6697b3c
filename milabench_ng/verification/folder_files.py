"""The files of a result folder and their checksums."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import require_folder
from milabench_ng.model.plain import plain
from milabench_ng.records.names import EVENTS, is_result_file


def result_files(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sorted names of the files that belong to a result folder, and of the foreign files in it.

    Names are relative, with ``/``. Links and other non-regular files are foreign. The run's event log is in neither
    list: no result depends on it, so it is not packed, but it is not foreign either. Raises InputError for a folder
    that may not be read.
    """
    require_folder(folder, "Give the result folder of a run")
    own: list[str] = []
    foreign: list[str] = []
    for name, regular in _walk(folder):
        if name == EVENTS and regular:
            continue
        (own if regular and is_result_file(name) else foreign).append(name)
    return tuple(sorted(own)), tuple(sorted(foreign))


def _walk(folder: Path) -> Iterator[tuple[str, bool]]:
    parents = [str(folder)]
    while parents:  # folders may be nested deeper than Python recurses
        for entry in _entries(parents.pop()):
            if entry.is_dir(follow_symlinks=False):
                parents.append(entry.path)
            else:
                yield os.path.relpath(entry.path, folder), entry.is_file(follow_symlinks=False)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(f"{plain(folder)}: {error.strerror}") from None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file. Raises InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{plain(path)}: {error.strerror}") from None
