"""Files of a checkpoint: written so that they survive a crash, read from the storage."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from milabench_ng.datasets.cache import drop
from milabench_ng.model.errors import DataError


def save(path: Path, content: Tensor) -> None:
    """Write ``content``, on the host: file and name are on the storage before this returns, and not in the page cache.

    A reader sees the old file or the whole new one (fsync(2), rename(2)).
    """
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        rest = _bytes(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        os.replace(part, path)
        _sync_folder(path.parent)
        drop(descriptor)
    finally:
        os.close(descriptor)


def load(path: Path, content: Tensor) -> None:
    """Fill ``content``, on the host, with a file. Raises DataError if the file is shorter."""
    rest = _bytes(content)
    with path.open("rb", buffering=0) as file:
        while rest:
            count = file.readinto(rest)
            if not count:
                raise DataError(f"{path}: {len(rest):,} bytes are missing at its end. Is the disk full?")
            rest = rest[count:]


def _bytes(content: Tensor) -> memoryview:
    return content.numpy().view("B").data


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
