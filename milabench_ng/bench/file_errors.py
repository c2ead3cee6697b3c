"""Turns exceptions that a file of a dataset can cause into data errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milabench_ng.datasets.base import DataSet
from milabench_ng.model.errors import DataError

UNREADABLE = (OSError, EOFError, SyntaxError)
"""Raised by reading a file that is missing, truncated or damaged."""
UNOPENED = (*UNREADABLE, ValueError, RuntimeError, AssertionError)
"""Raised by torchvision and numpy when they open such a dataset."""
OF_FILES = (None, errno.ENOENT, errno.EACCES, errno.EIO, errno.ENOTDIR, errno.EISDIR, errno.ESTALE, errno.ELOOP)
"""The errno of such an OSError; None if Pillow raised it or it comes from a loader process."""


class FileErrors:
    """Tells the exceptions of one dataset's files from others; without a dataset all are others."""

    def __init__(self, data_set: DataSet | None, path: Path | None) -> None:
        self._data_set = data_set
        self._path = path

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Raise DataError for what opening a damaged dataset raises."""
        try:
            yield
        except UNOPENED as error:
            raise self._data_error(error) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise DataError for what reading a missing or damaged file raises."""
        try:
            yield
        except UNREADABLE as error:
            foreign = isinstance(error, ConnectionError) or getattr(error, "errno", None) not in OF_FILES
            if self._data_set is None or foreign:
                raise
            raise self._data_error(error) from error

    def _data_error(self, error: Exception) -> DataError:
        name = self._data_set.name if self._data_set else ""
        reason = str(error).strip().rpartition("\n")[2]
        return DataError(f"dataset {name} in {self._path}: {reason}. Check it with mnb prepare")
