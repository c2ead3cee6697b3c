"""More busy threads than a tenant has CPUs."""

import hashlib
from multiprocessing import cpu_count

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.workloads.antagonists.pressing import Busy, Crew, paced

ROUNDS = 100_000
"""Of a hash, which takes a CPU some 0.05 s, out of its own caches and without Python's lock."""


@workload(unit="hashes", bound="cpu", cpu_only=True, ram_gib=0.5)
def hogs(bench: Bench, *, times: Count = 4, busy: Busy = 1.0) -> None:
    """Keep several threads busy for each CPU of the node: presses on the scheduler, and on CPUs that no fence guards.

    This is what a program does that counts the CPUs of the node instead of its own. An item is one hash (PBKDF2,
    100,000 rounds of HMAC-SHA-256). Timed: everything, pauses included.

    Options:
        times: threads for each CPU of the node.
        busy: share of the time in which it works.
    """
    with Crew(times * cpu_count(), lambda _: hashlib.pbkdf2_hmac("sha256", b"hog", b"salt", ROUNDS)) as crew:
        for _ in bench.measure(paced(busy), count=crew.size):
            crew.round()
