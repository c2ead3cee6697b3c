"""Reads, several times a second, the counters of a group of which the kernel keeps no maximum.

All others are read once, at the end: groups keep their counters until they are removed.
"""

from __future__ import annotations

from pathlib import Path

from milabench_ng.node.held_file import HeldFile, held_if_there, number_of
from milabench_ng.records.isolation import Usage

MemoryLines = tuple[bytes, bytes, bytes]
"""The lines of anonymous memory, shared memory, and the page cache with shared memory, in ``memory.stat``."""


class WatchedGroup:
    """The files of one group; None for what is not to be watched."""

    def __init__(self, lines: MemoryLines, stat: Path | None, memory: Path | None, pids: Path | None) -> None:
        """`memory` and `pids` hold the current numbers, for kernels without `memory.peak` and `pids.peak`."""
        self._lines = lines
        self._stat, self._memory, self._pids = (held_if_there(path) for path in (stat, memory, pids))

    def read(self) -> Usage:
        """What is watched, now. Raises OSError if the group has vanished."""
        stat = self._stat.read() if self._stat else b""
        anon, shmem, cache = (number_of(stat, line) for line in self._lines)
        return Usage(
            memory_bytes=_number(self._memory),
            anon_bytes=anon,
            shmem_bytes=shmem,
            page_cache_bytes=None if cache is None else cache - (shmem or 0),
            pids_peak=_number(self._pids),
        )

    def close(self) -> None:
        for file in (self._stat, self._memory, self._pids):
            if file is not None:
                file.close()


def _number(file: HeldFile | None) -> int | None:
    return int(file.read()) if file else None
