"""Reads of the storage below the data root."""

import os
from pathlib import Path

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, Crew, paced

PIECE = 4 * MIB


@workload(unit="MiB", bound="io", cpu_only=True, stores=True, ram_gib=0.5)
def disk_read(bench: Bench, *, mib: Count = 256, readers: Count = 4, busy: Busy = 1.0) -> None:
    """Read files that are in no page cache: presses on the storage below the data root.

    Each reader has a file of random bytes, and drops its pages before each round. An item is one MiB read. Timed:
    everything, pauses included.

    Options:
        mib: MiB of each file, read in one step.
        readers: threads, at most one per CPU of the tenant.
        busy: share of the time in which it works.
    """
    count = bench.processes(readers)
    with bench.storage(count * mib * MIB) as folder:
        files = [folder / f"{number}.bin" for number in range(count)]
        for file in files:
            write(file, mib)
        with Crew(count, lambda number: read(files[number])) as crew:
            for _ in bench.measure(paced(busy), count=count * mib):
                crew.round()


def write(file: Path, mib: int) -> None:
    """Fill ``file`` with random bytes, and have them on the storage."""
    with file.open("wb") as stream:
        for _ in range(mib):
            stream.write(os.urandom(MIB))
        stream.flush()
        os.fsync(stream.fileno())


def read(file: Path) -> int:
    """Read ``file`` from the storage; the bytes read."""
    buffer, found = bytearray(PIECE), 0
    with file.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while count := stream.readinto(buffer):
            found += count
    return found
