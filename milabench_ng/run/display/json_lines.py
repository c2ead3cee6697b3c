"""``events.jsonl`` in the result folder: every event as one line of JSON, for programs that follow a run.

The first line of a session is its `RunBegins`, with the schema's number; earlier events (the start of the worker
server, the datasets) are not in the file. A session that resumes a folder appends; ``number`` starts over, and
a line that the previous session left incomplete is removed. Nothing is read back from the file: records and ledger do
not depend on it.
"""

from __future__ import annotations

import os
from pathlib import Path

from milabench_ng.model.files import open_to_write, opened_folder, write_all
from milabench_ng.model.plain import whole_json
from milabench_ng.run.events.run_events import RunBegins, RunEvent, Stamped


class JsonLines:
    """Appends the events of a session to a file."""

    wants: tuple[type[RunEvent], ...] = (RunEvent,)

    def __init__(self, path: Path) -> None:
        """Touch nothing yet: if the disk fails, that must hit the sink and not the run."""
        self.name = f"{path.name}, which mnb watch and its page read,"
        self._path = path
        self._descriptor: int | None = None

    def receive(self, stamped: Stamped) -> None:
        """Write one line, from the session's `RunBegins` on."""
        if self._descriptor is None:
            if not isinstance(stamped.event, RunBegins):
                return
            self._descriptor = open_whole(self._path)
        write_all(self._descriptor, whole_json(stamped) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def open_whole(path: Path) -> int:
    """Open ``path`` to append whole lines; anything after its last newline is removed."""
    with opened_folder(path.parent) as folder:
        descriptor = open_to_write(path.name, folder, os.O_APPEND | os.O_NONBLOCK)  # a FIFO fails, and blocks nobody
        size = os.fstat(descriptor).st_size
        if size:
            reader = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.ftruncate(descriptor, _end_of_lines(reader, size))
            finally:
                os.close(reader)
    return descriptor


def _end_of_lines(reader: int, size: int) -> int:
    """Where the last whole line of a file of ``size`` bytes ends."""
    block = 1 << 16
    while size:
        start = max(0, size - block)
        newline = os.pread(reader, size - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        size = start
    return 0
