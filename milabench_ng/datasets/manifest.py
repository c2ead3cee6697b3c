"""The listing of a twin's files, and its manifest, which is written last."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_json
from milabench_ng.model.plain import short

SCHEMA = 1
MANIFEST = "mnb-manifest.json"
LISTING = "mnb-files.json"
TOLD_BYTES = 1 << 28
"""How many bytes are read between two reports of progress."""


class TwinFile(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One file: path below the set's folder, size in bytes, SHA-256 of its content in hexadecimal."""

    path: str
    size: int
    sha256: str


class TwinManifest(msgspec.Struct, frozen=True, kw_only=True):
    """How a twin was made and what it holds. A folder without one is not a twin."""

    schema: int = SCHEMA
    name: str
    kind: Literal["twin", "classic"] = "twin"
    seed: int
    generator: int
    """Version of the generator."""
    scale: float
    files: int
    bytes: int
    checksum: str
    """SHA-256 of the listing, which holds (path, size, SHA-256) of each file, sorted."""
    libraries: dict[str, str]
    """Versions of libraries that the bytes depend on: JPEG files differ between JPEG libraries."""
    created: str
    """When it was made: UTC, ISO 8601."""


def read(place: Path) -> TwinManifest | None:
    """The manifest in `place`; None if there is none. Raises InputError if this version cannot read it."""
    path = place / MANIFEST
    if not os.path.lexists(path):
        return None
    try:
        manifest = msgspec.convert(read_json(path), TwinManifest)
    except (InputError, msgspec.ValidationError) as error:
        raise InputError(
            f"{path} is not a manifest of a dataset: {short(error)}. Delete {place}, and mnb generates it again"
        ) from error
    if manifest.schema != SCHEMA:
        raise InputError(
            f"{path} has schema {manifest.schema}, but this mnb reads {SCHEMA}. Use the mnb that made it, or "
            "another data root"
        )
    return manifest


def write(place: Path, manifest: TwinManifest) -> None:
    (place / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def files(place: Path) -> Iterator[os.DirEntry[str]]:
    """All files below `place`, in any order, except listing and manifest."""
    folders = [str(place)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name not in (MANIFEST, LISTING):
                    yield entry


def digest(place: Path, threads: int, progress: Callable[[int, int], None] | None = None) -> list[TwinFile]:
    """Read all files below `place` and list them, sorted; ``progress`` is told the bytes read and all bytes."""
    sizes = {os.path.relpath(entry.path, place): entry.stat(follow_symlinks=False).st_size for entry in files(place)}
    found: list[TwinFile] = []
    done, told, total = 0, 0, sum(sizes.values())
    with ThreadPoolExecutor(max(1, threads)) as pool:  # hashlib and read release the GIL
        for entry in pool.map(functools.partial(_entry, place), sorted(sizes)):
            found.append(entry)
            done += entry.size
            if progress is not None and done - told >= TOLD_BYTES:
                progress(done, total)
                told = done
    return sorted(found)


def _entry(place: Path, path: str) -> TwinFile:
    with open(place / path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return TwinFile(path, os.fstat(file.fileno()).st_size, sha256)


def write_listing(place: Path, entries: list[TwinFile]) -> None:
    (place / LISTING).write_bytes(_encode(entries))


def checksum(entries: list[TwinFile]) -> str:
    """The checksum of a set: SHA-256 of its listing."""
    return hashlib.sha256(_encode(entries)).hexdigest()


def _encode(entries: list[TwinFile]) -> bytes:
    """The canonical bytes of a listing: a line for each file."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, entries)) + b"\n]\n"


def read_listing(place: Path) -> list[TwinFile]:
    """The files of a twin, sorted by path, without walking its folders (0.1 s for 100,000)."""
    path = place / LISTING
    try:
        return msgspec.convert(read_json(path, LARGE), list[TwinFile])
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} is not a file list of a dataset: {short(error)}. Delete {place}, and mnb generates it again"
        ) from error
