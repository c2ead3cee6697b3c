"""Copies between host and device, both ways at once, whose data travel to and fro and are verified."""

from itertools import repeat

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.stress.field import ROW, VALUES, Field
from milabench_ng.workloads.stress.pulse import Hertz, waiting

TRIPS = 16
"""Of each of the two packets, in a lap."""


@workload(
    unit="MiB",
    most_items=f"{2 * TRIPS} * mib",
    bound="links",
    paced_by="pulse_hz",
    derived=(Derived("GB/s both ways", f"rate * {MIB} / 1e9"),),
)
def burn_bus(bench: Bench, *, mib: Count = 256, pulse_hz: Hertz = 0.0) -> None:
    """Copy two packets to the device and back, in opposite directions at the same time: bound by PCIe.

    Page-locked memory of the tenant's memory node, a stream for each direction. A step is sixteen trips of each packet;
    what a trip damages stays damaged, and after the last both packets are verified on the device, as `burn_memory` does
    it. An item is one MiB that was copied, either way. Timed: copies and sums.

    Options:
        mib: MiB of a packet.
        pulse_hz: how often a second all tenants work and pause together, up to 20; 0: without pauses.
    """
    packets = [Packet(bench.device, mib) for _ in range(2)]
    packets[1].leave()
    packets[1].arrive()
    check = bench.verifier
    check.begin("GB", VALUES)
    wait = waiting(pulse_hz, bench.device)
    for _ in bench.measure(repeat(()), count=2 * TRIPS * mib):
        for _ in range(TRIPS):
            wait()
            for packet in packets:
                packet.leave()
            for packet in packets:
                packet.arrive()
        check.note("copy", packets[0].wrong() + packets[1].wrong(), 2 * TRIPS * mib * MIB / 1e9)
    packets[1].leave()
    packets[1].arrive()
    check.note("copy", packets[1].wrong())
    check.report()


class Packet:
    """A field that is on the device or on the host."""

    def __init__(self, device: torch.device, mib: int) -> None:
        cuda = device.type == "cuda"
        self.field = Field(device, mib * MIB // (ROW * 8))
        self.host = torch.empty(self.field.words.shape, dtype=torch.int64, pin_memory=cuda)
        self._on_device = True
        self._stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Copy it to the other side, after all work so far."""
        places = self.field.words, self.host
        source, target = places if self._on_device else places[::-1]
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
        self._on_device = not self._on_device

    def arrive(self) -> None:
        """Have what follows wait for the copy. On the device it is inverted, so that no copy may be left out."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        if self._on_device:
            self.field.invert()

    def wrong(self) -> Tensor:
        """How many rows on the device are not as they must be."""
        return self.field.wrong()
