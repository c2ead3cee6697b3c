"""Memory bandwidth of the tenant's CPUs."""

import torch

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, paced


@workload(unit="MiB", most_items="3 * mib", bound="cpu", cpu_only=True, ram_gib=2)
def memory_stream(bench: Bench, *, mib: Count = 256, busy: Busy = 1.0) -> None:
    """Stream through memory on all CPUs of the tenant: presses on memory bandwidth, and fills the last cache.

    The triad of STREAM (McCalpin, 1995), a = b + 3 c in fp32. An item is one MiB read or written, counted as STREAM
    does: three arrays a step, without what the hardware reads in order to write. Timed: everything, pauses included.

    Options:
        mib: MiB of each of the three arrays; together they should be several times the last cache.
        busy: share of the time in which it works.
    """
    a, b, c = (torch.rand(mib * MIB // 4) for _ in range(3))
    for _ in bench.measure(paced(busy), count=3 * mib):
        torch.add(b, c, alpha=3.0, out=a)
