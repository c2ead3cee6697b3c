"""Memory bandwidth of the tenant's GPU."""

import torch

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, finish, paced

COPIES = 10
"""In a step."""


@workload(unit="MiB", most_items="20 * mib", bound="gpu-memory")
def gpu_stream(bench: Bench, *, mib: Count = 1024, busy: Busy = 1.0) -> None:
    """Copy within the memory of the device: presses on its bandwidth where a GPU is shared.

    An item is one MiB read or written; a copy counts twice. Timed: everything, pauses included.

    Options:
        mib: MiB of the buffer that is copied.
        busy: share of the time in which it works.
    """
    source = torch.empty(mib * MIB, dtype=torch.uint8, device=bench.device).random_()
    target = torch.empty_like(source)
    for _ in bench.measure(paced(busy), count=COPIES * 2 * mib):
        for _ in range(COPIES):
            target.copy_(source)
        finish(bench.device)
