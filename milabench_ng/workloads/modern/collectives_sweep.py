"""One collective operation over all devices, at message sizes from 8 bytes up."""

from itertools import count
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.units import GIB, KIB, MIB
from milabench_ng.workloads.modern.collectives import LOOK, VALUES, several_devices

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
FACTORS: dict[Operation, float] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""Bytes on the wires per byte of a message, times devices / (devices - 1), by NCCL's conventions (nccl-tests,
PERFORMANCE.md). Of a broadcast, each byte is there once."""
TIMES = {8 << 3 * power: times for power, times in enumerate((50, 50, 50, 50, 50, 20, 16, 4, 1, 1, 1))}
"""How often a step sends a message of so many bytes."""
SHORT = [size for size in TIMES if size <= 64 * KIB]
LONG = [size for size in TIMES if size >= GIB]
ALL_MIB = sum(size * times for size, times in TIMES.items()) // MIB
"""Of all messages of a step."""
LARGEST_MIB = max(TIMES) // MIB
ROOM_MIB = 100
"""What sizes far below the largest add at most."""
EACH = 1 << 16
"""Of a message with at most so many elements, all are compared."""


def summed(sizes: list[int], what: str) -> str:
    """The formula of a sum over ``sizes``; ``what`` has ``{size}`` and ``{times}``."""
    return f"({' + '.join(what.format(size=size, times=TIMES[size]) for size in sizes)})"


@workload(
    unit="MiB",
    most_items=f"{ALL_MIB} / {LARGEST_MIB} * largest_mib + {ROOM_MIB}",
    distributed=True,
    bound="links",
    notes=("factor", *(f"b{size}_s" for size in TIMES)),
    derived=(
        Derived(
            "GB/s from 1 GiB",
            f"{summed(LONG, '{size}')} * factor / {summed(LONG, 'b{size}_s')} / 1e9",
            {"largest_mib": LARGEST_MIB},
        ),
        Derived("us up to 64 KiB", f"1e6 * {summed(SHORT, 'b{size}_s')} / {summed(SHORT, '{times}')}"),
        *(
            derived
            for size, times in TIMES.items()
            for derived in (
                Derived("GB/s", f"{size * times} * factor / b{size}_s / 1e9", curve_over="bytes", curve_at=size),
                Derived("us", f"1e6 * b{size}_s / {times}", curve_over="bytes", curve_at=size),
            )
        ),
    ),
    fits=several_devices,
)
def collectives_sweep(bench: Bench, *, operation: Operation = "all_reduce", largest_mib: Count = LARGEST_MIB) -> None:
    """Send messages from 8 bytes up to 8 GiB between all devices by one operation: bound by the links between them.

    NCCL on GPUs, gloo on CPUs, in fp32. A step sends each of eleven sizes, the small ones many times. Sizes mean what
    they do in nccl-tests, rounded up so that each device has as many numbers. All values are known, and each step
    compares a part of each result, of small messages all. An item is one MiB of a message; GB/s mean bus bandwidth by
    NCCL's factors. The time of a message is that of a program in PyTorch, with what the host takes for a call. Timed:
    filling the messages, sending, comparing.

    Options:
        operation: the collective operation.
        largest_mib: MiB of the largest message; larger sizes are left out.
    """
    messages = Messages(bench, operation, [size for size in TIMES if size <= largest_mib * MIB])
    for step in bench.measure(count(), count=messages.mib):
        messages.step(step)


class Messages:
    """The messages of one rank."""

    def __init__(self, bench: Bench, operation: Operation, sizes: list[int]) -> None:
        """``sizes``: in bytes."""
        ranks = bench.ranks
        self._notes, self._rank, self._ranks = bench.notes, bench.rank, ranks
        self._operation = operation
        self._sizes = sizes
        self._factor = FACTORS[operation] * (ranks - 1) / ranks if operation in FACTORS else 1.0
        self._numbers = torch.arange(float(ranks), device=bench.device)[:, None]
        self._check = bench.verifier
        self._check.begin("GB", "numbers of ranks and steps")
        self.mib = max(1, round(sum(TIMES[size] * size for size in sizes) / MIB))
        """Of a step."""
        longest = max(TIMES[size] * self._whole(size) for size in sizes)
        shares = longest // ranks
        sent, received = {"all_gather": (shares, longest), "reduce_scatter": (longest, shares)}.get(
            operation, (longest, longest)
        )
        self._sent = torch.empty(sent, device=bench.device)
        in_place = operation in ("all_reduce", "broadcast")
        self._received = self._sent if in_place else torch.empty(received, device=bench.device)

    def step(self, number: int) -> None:
        """All sizes, with values that follow from rank and ``number``, and the comparison."""
        first = 1.0 + number % VALUES
        own = first + self._rank
        for size in self._sizes:
            sent, received = self._messages(size)
            if self._operation == "all_to_all":
                self._parts(sent).copy_((own * self._ranks + self._numbers).expand_as(self._parts(sent)))
            else:
                sent.fill_(own)
            with self._notes.timed(f"b{size}_s"):
                for message, result in zip(sent, received, strict=True):
                    communicate(self._operation, message, result)
            every = 1 if received.shape[1] <= EACH else LOOK
            compared = self._parts(received)[..., number % every :: every]
            self._check.note(f"{size} bytes", (compared != self._expected(first)).sum(), compared.nbytes / 1e9)
        self._notes.add("factor", self._factor)

    def _whole(self, size: int) -> int:
        """Numbers of a message of so many bytes, which the operation can divide."""
        return -(-size // 4 // self._ranks) * self._ranks

    def _messages(self, size: int) -> tuple[Tensor, Tensor]:
        """What is sent and received by all messages of a size, one a row."""
        times, whole = TIMES[size], self._whole(size)
        shares = whole // self._ranks
        sent = self._sent[: times * (shares if self._operation == "all_gather" else whole)]
        received = self._received[: times * (shares if self._operation == "reduce_scatter" else whole)]
        return sent.view(times, -1), received.view(times, -1)

    def _parts(self, messages: Tensor) -> Tensor:
        """Messages [times, numbers], by the rank that a part is of, or for, if each has its own."""
        own = self._operation in ("all_gather", "all_to_all")
        return messages.view(len(messages), self._ranks if own else 1, -1)

    def _expected(self, first: float) -> Tensor | float:
        """What is received by a part, if rank 0 sends ``first`` and each other one more than the one before."""
        senders = first + self._numbers
        match self._operation:
            case "broadcast":
                return first
            case "all_gather":
                return senders
            case "all_to_all":
                return senders * self._ranks + self._rank
            case _:
                return self._ranks * first + self._ranks * (self._ranks - 1) / 2


def communicate(operation: Operation, sent: Tensor, received: Tensor) -> None:
    """One message."""
    match operation:
        case "all_reduce":
            dist.all_reduce(sent)
        case "all_gather":
            dist.all_gather_into_tensor(received, sent)
        case "reduce_scatter":
            dist.reduce_scatter_tensor(received, sent)
        case "all_to_all":
            dist.all_to_all_single(received, sent)
        case "broadcast":
            dist.broadcast(sent, 0)
