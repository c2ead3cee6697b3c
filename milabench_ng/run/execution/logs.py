"""A launch's standard output and error, in a file, or in memory if no file can be made."""

from __future__ import annotations

import os
from pathlib import Path

from milabench_ng.model.files import open_to_write, opened_folder


class Log:
    """The log of one launch, open while it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.in_memory = False
        try:
            with opened_folder(path.parent) as folder:
                self.descriptor = open_to_write(path.name, folder, os.O_APPEND)
        except OSError:  # the disk is full, read-only or gone, or there is a link: keep it in memory
            self.descriptor = os.memfd_create(path.name)
            self.in_memory = True

    def close(self) -> bytes:
        """Close the log; return what was kept in memory."""
        content = b""
        if self.in_memory:
            size = os.lseek(self.descriptor, 0, os.SEEK_END)
            content = os.pread(self.descriptor, size, 0)
        os.close(self.descriptor)
        return content
