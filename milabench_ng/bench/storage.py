"""A place for the files that a workload writes: on the storage that the datasets are on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from milabench_ng.model.errors import InputError
from milabench_ng.model.units import format_bytes
from milabench_ng.records.worker_variables import STORAGE_VARIABLE


@contextmanager
def folder(needed: int, processes: int) -> Iterator[Path]:
    """A new folder in the run's own below the data root; by itself, in that of temporary files. Removed at the end.

    ``needed``: bytes that each of ``processes`` will write. Raises InputError if there is too little room for them.
    """
    with TemporaryDirectory(prefix="tenant-", dir=os.environ.get(STORAGE_VARIABLE)) as name:
        room = shutil.disk_usage(name).free + (_written(Path(name).parent) if STORAGE_VARIABLE in os.environ else 0)
        if room < needed * processes:
            raise InputError(
                f"{processes} x {format_bytes(needed)} of files are written to {name}, where there is room for "
                f"{format_bytes(room)}: make room, or choose another data root (-d)"
            )
        yield Path(name)


def _written(run: Path) -> int:
    """Bytes that the run's tenants have written below its folder so far."""
    found = 0
    for place, _, files in os.walk(run):
        for file in files:
            with suppress(FileNotFoundError):  # its tenant has just ended
                found += os.stat(os.path.join(place, file)).st_blocks * 512
    return found
