"""Processes, started and ended."""

import os

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.workloads.antagonists.pressing import Busy, Crew, paced

PROGRAM = "/bin/true"


@workload(unit="processes", bound="cpu", cpu_only=True, ram_gib=0.5)
def process_storm(bench: Bench, *, each: Count = 20, busy: Busy = 1.0) -> None:
    """Start processes and wait for their ends on all CPUs of the tenant: presses on the kernel's locks and tables.

    An item is one process, which ends at once. Timed: everything, pauses included.

    Options:
        each: processes that every thread starts in a step, one after the other.
        busy: share of the time in which it works.
    """
    with Crew(bench.processes(1 << 16), lambda _: start_and_wait(each)) as crew:
        for _ in bench.measure(paced(busy), count=crew.size * each):
            crew.round()


def start_and_wait(count: int) -> None:
    for _ in range(count):
        os.waitpid(os.posix_spawn(PROGRAM, [PROGRAM], {}), 0)
