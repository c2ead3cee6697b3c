"""Kernel files that are read several times a second: opened once, since opening costs more than reading."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

_ENOUGH_BYTES = 1 << 14
"""More than any file read here; the kernel writes the whole file again for every read from its start."""


class HeldFile:
    """A file of procfs, sysfs or cgroupfs, opened by its first read and closed by `close`, or with this object."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._closing: weakref.finalize[..., Any] | None = None

    def read(self) -> bytes:
        """Its text now. Raises OSError if it is missing, or what it is about has vanished."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._closing = weakref.finalize(self, os.close, self._descriptor)
        return os.pread(self._descriptor, _ENOUGH_BYTES, 0)

    def close(self) -> None:
        """Close it; the next read opens it again."""
        if self._closing is not None:
            self._closing()
        self._descriptor = self._closing = None


def held_if_there(path: Path | None) -> HeldFile | None:
    """The file, if there is one by that name."""
    return HeldFile(path) if path is not None and path.exists() else None


def text_of(file: HeldFile | None) -> bytes:
    """What the file holds now; nothing if there is none, or what it is about has vanished."""
    try:
        return b"" if file is None else file.read()
    except OSError:
        return b""


def number_of(table: bytes, name: bytes) -> int | None:
    """The number in the line ``name number`` of a table such as ``memory.stat``; None without such a line."""
    _, found, rest = (b"\n" + table).partition(b"\n" + name + b" ")
    return int(rest.split(None, 1)[0]) if found else None
