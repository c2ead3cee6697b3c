"""A place for the files that a workload writes: on the storage that the data sets are on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from milabench_ng.errors import InputError
from milabench_ng.requests import STORAGE_VARIABLE
from milabench_ng.units import format_bytes


@contextmanager
def folder(needed: int, processes: int) -> Iterator[Path]:
    """A new folder in the run's own below the data root; by itself, in that of temporary files. Removed at the end.

    ``needed``: bytes that each of ``processes`` will write. Raises InputError if there is too little room for them.
    """
    with TemporaryDirectory(prefix="tenant-", dir=os.environ.get(STORAGE_VARIABLE)) as name:
        free = shutil.disk_usage(name).free
        if free < needed * processes:
            raise InputError(
                f"{processes} x {format_bytes(needed)} of files are written to {name}, where {format_bytes(free)} are "
                "free: make room, or choose another data root (-d)"
            )
        yield Path(name)
