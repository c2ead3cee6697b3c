"""What a result folder must hold: compares what lies on the disk with what was written, and can write it again."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from milabench_ng.model.files import opened_folder
from milabench_ng.model.units import MIB
from milabench_ng.records.names import (
    file_digest,
    give_name,
    set_aside_name,
    sync_folder,
    whole_content,
    write_temporary,
)

COPIES_BYTES = 256 * MIB
"""Of all copies in memory, compressed: some ten thousand records. What is written later and damaged is made again."""

_Seen = tuple[int, ...]
"""Device, inode, size and times of a file: no content changes without them, as nobody can set the time of a change."""


class KeptFiles:
    """The files of a folder that must stay as they were written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[str, tuple[int, str]] = {}
        self._copies: dict[str, bytes] = {}
        self._seen: dict[str, _Seen] = {}
        self._copied = 0

    def __contains__(self, name: str) -> bool:
        return name in self._digests

    def add(self, name: str, content: bytes, *, copy: bool = True) -> None:
        """Note what was written under ``name``; ``copy``: in full, as long as there is room for it."""
        self._digests[name] = (len(content), file_digest(content))
        self._copied -= len(self._copies.pop(name, b""))
        compressed = zlib.compress(content, 1) if copy else b""
        if copy and self._copied + len(compressed) <= COPIES_BYTES:
            self._copies[name] = compressed
            self._copied += len(compressed)

    def drop(self, name: str) -> None:
        """Ask for this file no longer."""
        del self._digests[name]

    def content(self, name: str) -> bytes | None:
        """What was written; None without a copy."""
        copy = self._copies.get(name)
        return None if copy is None else zlib.decompress(copy)

    def damaged(self) -> Iterator[str]:
        """The files that are gone, or hold something else, or cannot be read."""
        return (name for name in tuple(self._digests) if not self._is_whole(name))

    def _is_whole(self, name: str) -> bool:
        path, (size, digest) = self._folder / name, self._digests[name]
        try:
            found = path.lstat()
        except OSError:
            return False
        seen = (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if seen == self._seen.get(name):
            return True
        if whole_content(path, digest, size) is None:
            return False
        self._seen[name] = seen
        return True


def replace_damaged(path: Path, content: bytes) -> str | None:
    """Write ``path`` again; returns the name under which what was found is kept, None if nothing was there.

    Raises OSError, with everything as it was.
    """
    write_temporary(path, content)
    aside = set_aside(path)
    give_name(path)
    sync_folder(path.parent)
    return aside


def set_aside(path: Path) -> str | None:
    """Give what is found under a name another one; returns that, None if nothing is there. Raises OSError."""
    if not os.path.lexists(path):
        return None
    name = set_aside_name(path)
    with opened_folder(path.parent) as folder:
        os.rename(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)
    return name
