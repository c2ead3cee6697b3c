"""Makes twins whose progress nobody watches, and says what they are."""

from __future__ import annotations

from pathlib import Path

from milabench_ng.datasets.base import DataSet
from milabench_ng.datasets.prepare import FoundDataset, prepare, read_again


def made(data_set: DataSet, root: Path, scale: float = 1.0, processes: int = 1) -> FoundDataset:
    return prepare(data_set, root, scale, quiet, processes)


def quiet(done: int, total: int) -> None:
    """Tell nobody."""


def checksum(found: FoundDataset) -> str:
    assert found.manifest is not None
    return found.manifest.checksum


def differing(data_set: DataSet, found: FoundDataset, scale: float = 1.0) -> tuple[str, ...]:
    """Files that are not as they were made."""
    return read_again(data_set, found, scale, quiet, 2).differing
