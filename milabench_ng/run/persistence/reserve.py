"""Space on the result folder's disk, held before a batch and given back if its records cannot be written without it.

It is a file without a name: the kernel frees it with this process, however that ends, and nobody takes it for a result.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from milabench_ng.model.files import allowed_size, open_to_write, opened_folder
from milabench_ng.records.names import temporary_name

NAME = "reserve"
"""It bears the temporary name of this for a moment, which the next session removes if a crash leaves it."""


class Reserve:
    """The space; none at first."""

    def __init__(self) -> None:
        self._descriptor = -1

    def take(self, folder: Path, size: int) -> None:
        """Hold at least ``size`` bytes, or as many as a file may have. Raises OSError; then it holds what it held."""
        if self._descriptor < 0:
            self._descriptor = _open(folder)
        size = allowed_size(size)
        held = os.fstat(self._descriptor).st_size
        if size > held:
            try:
                # Where a file system cannot allocate, the C library writes a byte of each block.
                os.posix_fallocate(self._descriptor, held, size - held)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, held)
                raise

    def give_back(self) -> bool:
        """Free the space; returns whether there was any."""
        if self._descriptor < 0:
            return False
        held = os.fstat(self._descriptor).st_size
        os.close(self._descriptor)
        self._descriptor = -1
        return held > 0


def _open(folder: Path) -> int:
    name = temporary_name(folder / NAME).name
    with opened_folder(folder) as place:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)
        descriptor = open_to_write(name, place, os.O_EXCL)
        os.unlink(name, dir_fd=place)
    return descriptor
