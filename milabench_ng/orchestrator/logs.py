"""What a launch writes to standard output and error: in a file, or in memory where no file can be made."""

from __future__ import annotations

import os
from pathlib import Path


class Log:
    """The log of one launch, open for as long as it goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.in_memory = False
        try:
            self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError:  # the disk is full, read-only or gone: what is said is kept until it can be written
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
