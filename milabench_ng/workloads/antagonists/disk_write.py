"""Writes to the storage below the data root."""

import os
from pathlib import Path

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, Crew, paced

PIECE = 4 * MIB


@workload(unit="MiB", bound="io", cpu_only=True, stores=True, ram_gib=0.5)
def disk_write(bench: Bench, *, mib: Count = 64, writers: Count = 4, busy: Busy = 1.0) -> None:
    """Write files and wait until they are on the storage: presses on the storage and its journal.

    Each writer overwrites a file of its own and calls fsync. An item is one MiB written. Timed: everything, pauses
    included.

    Options:
        mib: MiB of each file, written in one step.
        writers: threads, at most one per CPU of the tenant.
        busy: share of the time in which it works.
    """
    count = bench.processes(writers)
    piece = os.urandom(PIECE)
    with (
        bench.storage(count * mib * MIB) as folder,
        Crew(count, lambda number: overwrite(folder / f"{number}.bin", piece, mib * MIB)) as crew,
    ):
        for _ in bench.measure(paced(busy), count=count * mib):
            crew.round()


def overwrite(file: Path, piece: bytes, size: int) -> None:
    """Write ``size`` bytes made of ``piece`` and sync them."""
    with file.open("r+b" if file.exists() else "wb", buffering=0) as stream:
        rest = size
        while rest:
            rest -= stream.write(piece[:rest])
        os.fsync(stream.fileno())
