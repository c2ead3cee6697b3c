"""Memory that is filled, streamed through and verified word by word."""

from itertools import repeat

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.stress.field import ROW, VALUES, Field
from milabench_ng.workloads.stress.pulse import Hertz, waiting

ROWS_PER_MIB = MIB // (ROW * 8)
TOUCHED = 3
"""How often a step moves each byte: read and written to invert it, read again to verify it."""


@workload(unit="MiB", most_items="3 * mib", bound="gpu-memory", paced_by="pulse_hz")
def burn_memory(bench: Bench, *, mib: Count = 4096, pulse_hz: Hertz = 0.0) -> None:
    """Invert all words of a large piece of the device's memory, and verify all of them: bound by its bandwidth.

    The words are random bits that differ from row to row of 64 KiB; a step inverts them in place (moving inversions),
    reads them again and compares the sum of each row with that which arithmetic says. An item is one MiB read or
    written: a step counts each three times. Timed: everything.

    Options:
        mib: MiB of the words.
        pulse_hz: how often a second all tenants work and pause together, up to 20; 0: without pauses.
    """
    stream(bench, mib, pulse_hz)


@workload(unit="MiB", most_items="3 * mib", bound="cpu", paced_by="pulse_hz", cpu_only=True, ram_gib=2)
def burn_ram(bench: Bench, *, mib: Count = 1024, pulse_hz: Hertz = 0.0) -> None:
    """Invert all words of a large piece of the tenant's RAM, and verify all of them: bound by its bandwidth.

    As `burn_memory`, in RAM. An item is one MiB read or written. Timed: everything.

    Options:
        mib: MiB of the words; they should be several times the last cache.
        pulse_hz: how often a second all tenants work and pause together, up to 20; 0: without pauses.
    """
    stream(bench, mib, pulse_hz)


def stream(bench: Bench, mib: int, pulse_hz: float) -> None:
    """Work until the stop; see `burn_memory`."""
    field = Field(bench.device, mib * ROWS_PER_MIB)
    check = bench.verifier
    check.begin("GB", VALUES)
    wait = waiting(pulse_hz, bench.device)
    for _ in bench.measure(repeat(()), count=TOUCHED * mib):
        wait()
        field.invert()
        wait()
        check.note("memory", field.wrong(), TOUCHED * mib * MIB / 1e9)
