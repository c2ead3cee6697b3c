"""The sampler process: reads all sources at a steady pace and writes what it read to stdout.

It is a process of its own, so that reads of some milliseconds per GPU hold up neither workers nor orchestrator. It ends
when its stdin ends, on SIGTERM, and when its parent dies. Nobody can block it: a sample that the pipe has no room for
is dropped and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from milabench_ng.node.drivers.opening import open_drivers, read_gpus
from milabench_ng.node.gpus import Gpu
from milabench_ng.telemetry.gpu import GpuSource
from milabench_ng.telemetry.host import HostSource
from milabench_ng.telemetry.messages import Dropped, Sample, SamplerReport, SourceName, Supported, Watch, encode
from milabench_ng.telemetry.tenant import TenantSource


class Source(Protocol):
    """Reads values by key; each source defines its keys: GPUs, tenants or the node."""

    @property
    def name(self) -> SourceName:
        """Name of this source in its samples."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that it currently reads."""

    @property
    def values(self) -> tuple[str, ...]:
        """Names of all values that it can provide."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Names of values that some key does not support here."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it provides nothing, if so."""

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The current values, by key. Skips keys that have vanished."""


_PR_SET_PDEATHSIG = 1
_CHUNK_BYTES = 1 << 16


class ReportWriter:
    """Writes reports to a pipe and never waits for the reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._dropped = 0
        """Number dropped since it was last reported."""
        self._since_s = 0.0

    def write(self, reports: Iterable[SamplerReport]) -> None:
        """Write the reports, or drop and count them. Reports the number dropped as soon as there is room again."""
        for time_s, lines in portions(reports):
            if self._dropped:
                self._tell_dropped(time_s)
            if not self._put(b"".join(lines)):
                self._since_s = self._since_s if self._dropped else time_s
                self._dropped += len(lines)

    def _tell_dropped(self, time_s: float) -> None:
        if self._put(encode(Dropped(time_s=time_s, since_s=self._since_s, count=self._dropped))):
            self._dropped = 0

    def _put(self, portion: bytes) -> bool:
        """Write if the pipe polls writable: it then has room for PIPE_BUF bytes and takes a line up to that (pipe(7)).

        Only the first report can be longer, on a node with very many devices, and it finds the pipe empty.
        """
        if not self._room.poll(0):
            return False
        os.write(self._descriptor, portion)
        return True


def portions(reports: Iterable[SamplerReport]) -> Iterator[tuple[float, list[bytes]]]:
    """The reports as lines, as many at a time as a pipe takes in one write; with the time of the first."""
    lines: list[bytes] = []
    size, time_s = 0, 0.0
    for report in reports:
        line = encode(report)
        if lines and size + len(line) > select.PIPE_BUF:
            yield time_s, lines
            lines, size = [], 0
        time_s = time_s if lines else report.time_s
        lines.append(line)
        size += len(line)
    if lines:
        yield time_s, lines


class OrderReader:
    """Reads the orders that have arrived on a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._coming = select.poll()
        self._coming.register(descriptor, select.POLLIN)
        self._rest = b""
        self.ended = False

    def wait(self, seconds: float) -> Iterator[bytes]:
        """The lines that arrive within ``seconds``; returns after the first ones, or when the time is up."""
        if not self._coming.poll(max(0.0, seconds) * 1000):
            return
        chunk = os.read(self._descriptor, _CHUNK_BYTES)
        self.ended = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        yield from lines


def supported(sources: Sequence[Source], interval_s: float) -> Supported:
    return Supported(
        time_s=time.monotonic(),
        interval_s=interval_s,
        keys={source.name: source.keys for source in sources},
        values={source.name: source.values for source in sources},
        unsupported={source.name: source.unsupported for source in sources},
        notes=tuple(note for source in sources for note in source.notes),
    )


def sample(sources: Sequence[Source]) -> Iterator[Sample]:
    """One sample of every key of every source, each with the time at which it was read."""
    for source in sources:
        for key, values in source.read():
            yield Sample(time_s=time.monotonic(), source=source.name, key=key, values=values)


def wanted(devices: Sequence[Gpu], uuids: str | None) -> tuple[Gpu, ...]:
    """The devices named by ``uuids``, separated by commas; all for None."""
    return tuple(gpu for gpu in devices if uuids is None or gpu.uuid in uuids.split(","))


def next_tick(due_s: float, now_s: float, interval_s: float) -> float:
    """The next future tick after ``due_s``: a read that took too long skips ticks instead of shifting them."""
    missed = max(0, int((now_s - due_s) / interval_s))
    return due_s + (missed + 1) * interval_s


def serve(
    sources: Sequence[Source], tenants: TenantSource, orders: OrderReader, interval_s: float
) -> Iterator[Iterable[SamplerReport]]:
    """All reports until the orders end, those of one sample together; ``tenants`` gets the orders."""
    yield (supported(sources, interval_s),)
    due = time.monotonic() + interval_s
    while not orders.ended:
        for line in orders.wait(due - time.monotonic()):
            tenants.watch(msgspec.json.decode(line, type=Watch))
        if time.monotonic() >= due:
            yield sample(sources)
            due = next_tick(due, time.monotonic(), interval_s)


def end_with_parent() -> None:
    """Get SIGTERM when the thread that started this process dies (prctl(2)), and exit silently on it.

    Ctrl-C at the terminal or a batch system's signal reaches the whole group, but the orchestrator decides whether the
    run ends.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # raising would print a traceback at interpreter exit
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def own_stdout() -> int:
    """Take standard output away from everybody else, and return it: libraries of drivers print to it."""
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return reports


def main(argv: Sequence[str] | None = None) -> int:
    """Sample until told to end. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m milabench_ng.telemetry.sampler", description=__doc__)
    parser.add_argument("--interval", type=float, default=0.5, metavar="SECONDS", help="time between samples")
    parser.add_argument("--gpus", metavar="UUID,...", help="the devices to read, possibly none; all if not given")
    given = parser.parse_args(argv)
    interval_s: float = given.interval
    end_with_parent()
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(19)
    reports = own_stdout()
    with open_drivers() as drivers:
        tenants = TenantSource()
        gpus = GpuSource(drivers, wanted(read_gpus(drivers).devices, given.gpus))
        sources: tuple[Source, ...] = (gpus, tenants, HostSource())
        writer = ReportWriter(reports)
        # A broken pipe: the reader is gone.
        with contextlib.suppress(BrokenPipeError):
            for samples in serve(sources, tenants, OrderReader(sys.stdin.fileno()), interval_s):
                writer.write(samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
