"""Words that all devices exchange with each other, and that must come home as they left."""

from itertools import repeat

import torch
import torch.distributed as dist

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import MIB
from milabench_ng.workloads.stress.field import ROW, VALUES, Field
from milabench_ng.workloads.stress.pulse import Hertz, waiting

EXCHANGES = 16
"""In a lap: an even number, after which all words are at home."""
OTHERS = "(devices - 1) / devices"


@workload(
    unit="MiB",
    most_items=f"{EXCHANGES} * mib * {OTHERS} + 1",  # 1 for rounding
    distributed=True,
    bound="links",
    paced_by="pulse_hz",
    derived=(Derived("GB/s to others", f"rate * {MIB} / 1e9"),),
)
def burn_links(bench: Bench, *, mib: Count = 512, pulse_hz: Hertz = 0.0) -> None:
    """Exchange words between all devices at once, and verify what comes home: bound by the links between them.

    NCCL on GPUs, gloo on CPUs. A step is sixteen all-to-all exchanges: in each, every device sends a part of its words
    to every other and inverts what it received. What an exchange damages stays damaged, and the owner of the words
    finds it when they are home, as `burn_memory` does. An item is one MiB sent to others. Timed: everything.

    Options:
        mib: MiB of the words of a device.
        pulse_hz: how often a second all devices work and pause together, up to 20; 0: without pauses.
    """
    ranks = dist.get_world_size()
    if ranks < 2:
        raise InputError("burn_links needs at least two devices, and has one: leave it out (--name)")
    rows = max(1, mib * MIB // (ROW * 8 * ranks)) * ranks
    field = Field(bench.device, rows, bench.rank)
    received = torch.empty_like(field.words)
    sent_mib = EXCHANGES * field.words.nbytes * (ranks - 1) / ranks / MIB
    check = bench.verifier
    check.begin("GB", VALUES)
    wait = waiting(pulse_hz, bench.device)
    for _ in bench.measure(repeat(()), count=max(1, round(sent_mib))):
        for _ in range(EXCHANGES):
            wait()
            dist.all_to_all_single(received, field.words)
            field.words, received = received, field.words
            field.invert()
        check.note("words", field.wrong(), sent_mib * MIB / 1e9)
