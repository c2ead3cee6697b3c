"""Collective operations over all devices, at the message sizes of training."""

from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import KIB, MIB

SMALL, LARGE, ROUNDS = 64, 8, 2
"""All-reduces of the two sizes in a step; rounds of all-gather and reduce-scatter, and of all-to-all."""
VALUES = 8
"""Steps until the values repeat."""
LOOK = 997
"""One element in so many of each result is compared in a step, another one in the next."""
OTHERS = "(devices - 1) / devices"
"""Bytes on the wires per byte of a message: NCCL's factor of all-gather, reduce-scatter and all-to-all (nccl-tests,
PERFORMANCE.md); all-reduce has twice that."""


def several_devices(*, devices: int) -> None:
    """Raise InputError for one device, which has no other to talk to."""
    if devices < 2:
        raise InputError("it needs at least two devices, and has one: leave it out (--name)")


@workload(
    unit="bus MiB",
    most_items=f"(small_kib / 8 + 16 * large_mib + 4 * block_mib + 2 * exchange_mib) * {OTHERS} + 1",  # 1 for rounding
    distributed=True,
    bound="links",
    notes=("small_s", "large_s", "gather_s", "scatter_s", "exchange_s"),
    derived=(
        Derived("GB/s all-reduce, small", f"{SMALL} * small_kib * {KIB} * 2 * {OTHERS} / small_s / 1e9"),
        Derived("GB/s all-reduce, large", f"{LARGE} * large_mib * {MIB} * 2 * {OTHERS} / large_s / 1e9"),
        Derived("GB/s all-gather", f"{ROUNDS} * block_mib * {MIB} * {OTHERS} / gather_s / 1e9"),
        Derived("GB/s reduce-scatter", f"{ROUNDS} * block_mib * {MIB} * {OTHERS} / scatter_s / 1e9"),
        Derived("GB/s all-to-all", f"{ROUNDS} * exchange_mib * {MIB} * {OTHERS} / exchange_s / 1e9"),
    ),
    fits=several_devices,
)
def collectives(
    bench: Bench,
    *,
    small_kib: Count = 256,
    large_mib: Count = 32,
    block_mib: Count = 416,
    exchange_mib: Count = 64,
) -> None:
    """Exchange messages between all devices: bound by the links between them.

    NCCL on GPUs, gloo on CPUs, in fp32. A step is 64 small and 8 large all-reduces, then twice all-gather and
    reduce-scatter of a block, one of a model of 8 billion parameters, and twice all-to-all. All values are known, and
    each step compares a part of each result. An item is one MiB on the wires of a device by NCCL's factors, so that the
    rate and GB/s mean bus bandwidth. Timed: filling the messages, sending, comparing.

    Options:
        small_kib: KiB of a small all-reduce.
        large_mib: MiB of a large all-reduce.
        block_mib: MiB of a gathered block.
        exchange_mib: MiB that a device sends in an all-to-all, its part for itself included.
    """
    sizes = {
        "small": small_kib * KIB,
        "large": large_mib * MIB,
        "block": block_mib * MIB,
        "exchange": exchange_mib * MIB,
    }
    exchange = Exchange(bench, sizes)
    for step in bench.measure(count(), count=exchange.bus_mib):
        exchange.step(step)


class Exchange:
    """The messages of one rank, and the comparison of what came of them."""

    def __init__(self, bench: Bench, sizes: dict[str, int]) -> None:
        """``sizes``: bytes of the messages: ``small``, ``large``, ``block``, ``exchange``."""
        self._timed = bench.notes.timed
        self._check = bench.verifier
        self._check.begin("GB", "numbers of ranks and steps")
        ranks = bench.ranks
        self._rank, self._ranks = bench.rank, ranks

        def floats(rows: int, size: int) -> Tensor:
            return torch.empty(rows, size // 4, device=bench.device)

        self._small, self._large = floats(SMALL, sizes["small"]), floats(LARGE, sizes["large"])
        self._block = floats(ranks, sizes["block"] // ranks)
        self._part, self._scattered = (floats(1, sizes["block"] // ranks) for _ in range(2))
        self._sent, self._received = (floats(ranks, sizes["exchange"] // ranks) for _ in range(2))
        self._numbers = torch.arange(float(ranks), device=bench.device).unsqueeze(1)
        bus = 2 * (SMALL * sizes["small"] + LARGE * sizes["large"]) + ROUNDS * (2 * sizes["block"] + sizes["exchange"])
        self.bus_mib = max(1, round(bus * (ranks - 1) / ranks / MIB))
        """Of a step, on the wires of one device."""

    def step(self, number: int) -> None:
        """All messages of a step, with values that follow from rank and ``number``, and the comparison."""
        own = float(self._rank + 1 + number % VALUES)
        for filled in (self._small, self._large, self._part):
            filled.fill_(own)
        self._sent.copy_((own * self._ranks + self._numbers).expand_as(self._sent))
        with self._timed("small_s"):
            for message in self._small:
                dist.all_reduce(message)
        with self._timed("large_s"):
            for message in self._large:
                dist.all_reduce(message)
        for _ in range(ROUNDS):
            with self._timed("gather_s"):
                dist.all_gather_into_tensor(self._block.view(-1), self._part.view(-1))
            with self._timed("scatter_s"):
                dist.reduce_scatter_tensor(self._scattered.view(-1), self._block.view(-1))
        for _ in range(ROUNDS):
            with self._timed("exchange_s"):
                dist.all_to_all_single(self._received.view(-1), self._sent.view(-1))
        self._compare(number)

    def _compare(self, number: int) -> None:
        """Note how many of the compared elements are not as expected, without waiting."""
        ranks, first = self._ranks, 1 + number % VALUES
        total = ranks * first + ranks * (ranks - 1) / 2
        senders = first + self._numbers
        expected: tuple[tuple[Tensor, Tensor | float], ...] = (
            (self._small, total),
            (self._large, total),
            (self._block, senders),
            (self._scattered, ranks * senders[self._rank]),
            (self._received, senders * ranks + self._rank),
        )
        parts = [result[:, number % LOOK :: LOOK] for result, _ in expected]
        wrong = [(part != value).sum() for part, (_, value) in zip(parts, expected, strict=True)]
        self._check.note("messages", torch.stack(wrong).sum(), sum(part.nbytes for part in parts) / 1e9)
