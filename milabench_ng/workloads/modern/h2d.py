"""Copies between host and device, in both directions at once."""

from itertools import repeat

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.errors import WrongResultError
from milabench_ng.model.units import MIB


@workload(
    unit="MiB",
    most_items="2 * mib",
    bound="links",
    notes=("in_s", "out_s"),
    derived=(
        Derived("GB/s to the device", f"mib * {MIB} / 1e9 / in_s"),
        Derived("GB/s to the host", f"mib * {MIB} / 1e9 / out_s"),
    ),
)
def h2d(bench: Bench, *, mib: Count = 256) -> None:
    """Copy to the device and back at the same time: bound by PCIe, and by what others do on it.

    Page-locked memory of the tenant's memory node, a stream for each direction. A step copies one buffer to the device,
    and the one before back to the host. An item is one MiB that was copied, either way. After the last step, what came
    back and what the last copy left on the device are compared with what was sent. Timed: both copies.

    Options:
        mib: MiB copied in each direction of a step.
    """
    copier = Copier(bench, mib * MIB)
    for _ in bench.measure(repeat(()), count=2 * mib):
        copier.step()
    copier.check()


class Copier:
    """Buffers on the host and two on the device, which take turns; on the CPU, all are in its memory."""

    def __init__(self, bench: Bench, size: int) -> None:
        """``size``: bytes of a buffer."""
        self._notes = bench.notes
        cuda = bench.device.type == "cuda"
        self._sent = torch.empty(size, dtype=torch.uint8, pin_memory=cuda).random_()
        self._returned = torch.zeros(size, dtype=torch.uint8, pin_memory=cuda)
        self._device = [torch.zeros(size, dtype=torch.uint8, device=bench.device) for _ in range(2)]
        self._steps = 0
        self._streams = [torch.cuda.Stream(bench.device) if cuda else None for _ in range(2)]  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Copy one buffer in and the other out; the next step's copies, and its marks, wait for both."""
        filled, emptied = self._device
        for stream, name, target, source in zip(
            self._streams, ("in_s", "out_s"), (filled, self._returned), (self._sent, emptied), strict=True
        ):
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream), self._notes.timed(name):
                target.copy_(source, non_blocking=True)
        for stream in self._streams:
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
        self._device.reverse()
        self._steps += 1

    def check(self) -> None:
        """Raise WrongResultError if what came back last, or what reached the device last, is not what was sent.

        The device must be idle. The first step brings back nothing that was sent.
        """
        if self._steps > 1:
            self._compare(self._returned, "came back from the device")
        if self._steps:
            self._compare(self._device[1].cpu(), "reached the device by the last copy")

    def _compare(self, copied: Tensor, how: str) -> None:
        wrong = torch.count_nonzero(copied != self._sent).item()
        if wrong:
            raise WrongResultError(f"{wrong:,} of {len(self._sent):,} bytes {how} other than sent")
