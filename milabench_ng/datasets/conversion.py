"""Binary files next to the texts of a set, which a launch maps into memory instead of parsing the texts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from milabench_ng.datasets.base import BINARY, DataSet, Progress

STAMP = "source.json"


class SourceFile(msgspec.Struct, frozen=True):
    """The sources of binary files: the set's version; name, bytes and modification time (ns) of each text."""

    version: int
    texts: tuple[tuple[str, int, int], ...]


def current(data_set: DataSet, place: Path) -> bool:
    """Whether launches can read the real set in `place`: its binary files are there and no older than its texts."""
    if not data_set.texts:
        return True
    try:
        return msgspec.json.decode((place / BINARY / STAMP).read_bytes(), type=SourceFile) == _source(data_set, place)
    except (FileNotFoundError, msgspec.MsgspecError):
        return False


def convert_twin(data_set: DataSet, place: Path, progress: Progress, processes: int) -> None:
    """Convert the twin being made in `place`: its binary files are part of it and of its checksum."""
    if data_set.texts:
        (place / BINARY).mkdir()
        data_set.convert(place, place / BINARY, progress, processes)


def convert_real(data_set: DataSet, place: Path, progress: Progress, processes: int) -> None:
    """Convert the real set in `place`, all or nothing; the caller holds the set's lock."""
    for old in (*place.glob(f".{BINARY}-*"), place / BINARY):
        shutil.rmtree(old, ignore_errors=True)
    temporary = place / f".{BINARY}-{os.getpid()}"
    temporary.mkdir()
    try:
        source = _source(data_set, place)
        data_set.convert(place, temporary, progress, processes)
        (temporary / STAMP).write_bytes(msgspec.json.encode(source))
        temporary.rename(place / BINARY)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _source(data_set: DataSet, place: Path) -> SourceFile:
    stats = [(name, (place / name).stat()) for name in data_set.texts]
    return SourceFile(data_set.version, tuple((name, found.st_size, found.st_mtime_ns) for name, found in stats))
