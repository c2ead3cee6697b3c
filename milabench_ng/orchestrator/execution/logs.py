"""What a launch writes to standard output and error: in a file, or in memory where no file can be made."""

from __future__ import annotations

import os
from pathlib import Path

from milabench_ng.files import open_to_write, opened_folder


class Log:
    """The log of one launch, open for as long as it goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.in_memory = False
        try:
            with opened_folder(path.parent) as folder:
                self.descriptor = open_to_write(path.name, folder, os.O_APPEND)
        except OSError:  # the disk is full, read-only or gone, or a link is there: it waits in memory
            self.descriptor = os.memfd_create(path.name)
            self.in_memory = True

    def close(self) -> bytes:
        """No more is written; what was kept in memory."""
        content = b""
        if self.in_memory:
            size = os.lseek(self.descriptor, 0, os.SEEK_END)
            content = os.pread(self.descriptor, size, 0)
        os.close(self.descriptor)
        return content
