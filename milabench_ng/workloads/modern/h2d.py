"""Copies between host and device, in one direction or both at once."""

from itertools import repeat
from typing import Literal

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.errors import WrongResultError
from milabench_ng.model.units import MIB

Direction = Literal["both", "in", "out"]
"""To the device and back, or one of them alone."""


@workload(
    unit="MiB",
    most_items="mib * (1 + (direction == 'both'))",
    bound="links",
    notes=("in_s", "out_s"),
    derived=(
        Derived("GB/s to the device", f"mib * {MIB} / 1e9 / in_s"),
        Derived("GB/s to the host", f"mib * {MIB} / 1e9 / out_s"),
    ),
    formerly={"direction": "both"},
)
def h2d(bench: Bench, *, mib: Count = 256, direction: Direction = "both") -> None:
    """Copy to the device and back at the same time, or one way: bound by PCIe, and by what others do on it.

    Page-locked memory of the tenant's memory node, a stream for each direction. A step copies one buffer to the device,
    and the one before back to the host. An item is one MiB that was copied, either way. After the last step, what came
    back and what the last copy left on the device are compared with what was sent. Timed: the copies.

    Options:
        mib: MiB copied in each direction of a step.
        direction: both at once; in: to the device alone; out: to the host alone.
    """
    copier = Copier(bench, mib * MIB, direction)
    for _ in bench.measure(repeat(()), count=mib * len(copier.streams)):
        copier.step()
    copier.check()


class Copier:
    """Buffers on the host and two on the device, which take turns; on the CPU, all are in its memory."""

    def __init__(self, bench: Bench, size: int, direction: Direction = "both") -> None:
        """``size``: bytes of a buffer."""
        self._notes = bench.notes
        cuda = bench.device.type == "cuda"
        self._sent = torch.empty(size, dtype=torch.uint8, pin_memory=cuda).random_()
        self._returned = torch.zeros(size, dtype=torch.uint8, pin_memory=cuda)
        self._device = [torch.zeros(size, dtype=torch.uint8, device=bench.device) for _ in range(2)]
        self._steps = 0
        ways = ("in", "out") if direction == "both" else (direction,)
        self.streams = {way: torch.cuda.Stream(bench.device) if cuda else None for way in ways}  # type: ignore[no-untyped-call]
        if direction == "out":  # nothing else brings anything to the device
            for buffer in self._device:
                buffer.copy_(self._sent)

    def step(self) -> None:
        """Copy one buffer in and the other out, or one of them; the next step's copies, and its marks, wait."""
        filled, emptied = self._device
        copies = {"in": (filled, self._sent), "out": (self._returned, emptied)}
        for way, stream in self.streams.items():
            target, source = copies[way]
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream), self._notes.timed(f"{way}_s"):
                target.copy_(source, non_blocking=True)
        for stream in self.streams.values():
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
        self._device.reverse()
        self._steps += 1

    def check(self) -> None:
        """Raise WrongResultError if what came back last, or what reached the device last, is not what was sent.

        The device must be idle. The first step in both directions brings back nothing that was sent.
        """
        if "out" in self.streams and self._steps >= len(self.streams):
            self._compare(self._returned, "came back from the device")
        if "in" in self.streams and self._steps:
            self._compare(self._device[1].cpu(), "reached the device by the last copy")

    def _compare(self, copied: Tensor, how: str) -> None:
        wrong = torch.count_nonzero(copied != self._sent).item()
        if wrong:
            raise WrongResultError(f"{wrong:,} of {len(self._sent):,} bytes {how} other than sent")
