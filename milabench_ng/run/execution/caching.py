"""Sets the page cache before a batch: the dataset's own files are evicted or read, for all tenants alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.datasets.cache import evict, resident_fraction, warm
from milabench_ng.model.errors import DataError
from milabench_ng.records.record import Data
from milabench_ng.worker.requests import ReadyDataset

Cache = Literal["cold", "warm"]
CacheState = Literal["cold", "warm", "mixed", "uncontrolled"]


class PreparedFiles(msgspec.Struct, frozen=True):
    """A dataset on disk and all its files."""

    place: ReadyDataset
    files: tuple[Path, ...]


def list_files(place: ReadyDataset) -> PreparedFiles:
    """The files of ``place``; listed once per run, outside all timing."""
    walked = os.walk(place.path)
    return PreparedFiles(place, tuple(Path(folder, name) for folder, _, names in walked for name in sorted(names)))


def make_ready(data: PreparedFiles, cache: Cache) -> Data:
    """Evict a dataset's files from the page cache or read them all; return the result that the kernel reports.

    Raises DataError for a file that is gone or cannot be read: a launch would find it like this, too.
    """
    place = data.place
    try:
        if cache == "cold":
            evict(data.files)
        else:
            warm(data.files)
        fraction = resident_fraction(data.files)
    except OSError as error:
        gone = "" if os.path.isdir(place.path) else ", like its whole folder"
        raise DataError(
            f"dataset {place.name} in {place.path}: {error.filename or place.path}: {error.strerror}{gone}. Restore "
            "it, or run mnb prepare"
        ) from None
    return Data(
        name=place.name,
        kind=place.kind,
        scale=place.scale,
        path=place.path,
        checksum=place.checksum,
        cache=_state(fraction),
        resident_fraction=fraction,
    )


def _state(fraction: float | None) -> CacheState:
    if fraction is None:
        return "uncontrolled"
    return "cold" if fraction < 0.05 else "warm" if fraction > 0.95 else "mixed"
