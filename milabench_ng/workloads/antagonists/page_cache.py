"""The page cache, filled and emptied again."""

import os
from pathlib import Path

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, Crew, paced

PIECE = MIB


@workload(unit="MiB", bound="cpu", cpu_only=True, stores=True, ram_gib=2)
def page_cache(bench: Bench, *, mib: Count = 256, busy: Busy = 1.0) -> None:
    """Fill the page cache and empty it again: presses on the kernel's memory management, not on the storage.

    Each CPU reads a sparse file of its own, whose pages the kernel makes without reading anything, and drops them. An
    item is one MiB that went through the page cache. Timed: everything, pauses included.

    Options:
        mib: MiB of each file, read in one step.
        busy: share of the time in which it works.
    """
    count = bench.processes(1 << 16)
    with bench.storage(0) as folder:
        files = [folder / f"{number}.sparse" for number in range(count)]
        for file in files:
            file.touch()
            os.truncate(file, mib * MIB)
        with Crew(count, lambda number: pass_through(files[number])) as crew:
            for _ in bench.measure(paced(busy), count=count * mib):
                crew.round()


def pass_through(file: Path) -> int:
    """Read ``file`` and drop its pages; the bytes read."""
    buffer, found = bytearray(PIECE), 0
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            found += count
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return found
