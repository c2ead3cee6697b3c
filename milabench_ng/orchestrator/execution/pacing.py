"""Measures the host pace: a fixed, short computation on all cores of a batch's shares at once.

The computation is the fast level of deflate over the same 128 KiB. It has tables, branches and the matching of bytes,
as decoders and loaders have, and works without the interpreter lock, so that threads of this process are enough. Beside
a busy sibling thread it slows down much as decoding of JPEG does; SHA-256, which is a chain of arithmetic in the newest
CPUs' own instructions, hardly does. How much memory bandwidth there is it does not show.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

from milabench_ng.records.host_pace import CpuPace, HostPace, pace_of

LIBRARY = f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
BURSTS = 5
PAUSE_S = 0.15
"""Between bursts: a neighbour that works for a moment spoils one of them and not their median."""
EDGE_S = 0.8
"""What all of it takes at one edge of a batch, as measured on 2 to 32 CPUs."""
ROUNDS = 3
"""Timed, of each burst; the fastest counts."""
TEXT = hashlib.shake_128(b"host pace").digest(128 << 10).translate(bytes(32 + i * i // 2048 for i in range(256)))
"""Letters as uneven as those of a text, so that there is something to match and to encode."""
PATIENCE_S = 10.0
"""Until all threads of a burst are on their CPUs; a process with real-time priority can keep one away."""

Burst = Callable[[Sequence[int]], Mapping[int, CpuPace]]


async def read_host_pace(shares: Mapping[int, Sequence[int]], burst: Burst) -> dict[int, HostPace]:
    """The pace of the CPUs of each share, by device: some 50 ms of work for each CPU in less than a second.

    ``burst`` works on the CPUs that it is given, all at once. The event loop goes on between bursts. Where one of the
    CPUs may not be used, the reason stands in the place of the figures.
    """
    cpus = sorted({cpu for share in shares.values() for cpu in share})
    seen: list[Mapping[int, CpuPace]] = []
    for number in range(BURSTS):
        if number:
            await asyncio.sleep(PAUSE_S)
        try:
            seen.append(burst(cpus))
        except OSError as error:
            return dict.fromkeys(shares, HostPace(problem=error.strerror or str(error)))
    return {device: pace_of(share, seen, LIBRARY) for device, share in shares.items()}


def work_at_once(cpus: Sequence[int]) -> dict[int, CpuPace]:
    """One burst: a thread on each of ``cpus``, all at the same time. OSError where that cannot be done."""
    crew = _Crew(len(cpus))
    threads = [threading.Thread(target=crew.work, args=(cpu,), name=f"host pace {cpu}") for cpu in cpus]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:
        crew.line.abort()
        raise OSError(errno.EAGAIN, f"no threads for {len(cpus)} CPUs can be started") from None
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if crew.refused:
        raise OSError(errno.EINVAL, "; ".join(crew.refused))
    if len(crew.seen) < len(cpus):
        raise OSError(errno.ETIME, f"not all of {len(cpus)} CPUs were free within {PATIENCE_S:.0f} s")
    return crew.seen


class _Crew:
    """The threads of a burst."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.line = threading.Barrier(size, timeout=PATIENCE_S)
        self.seen: dict[int, CpuPace] = {}
        self.refused: list[str] = []
        self._ended: list[int] = []

    def work(self, cpu: int) -> None:
        """The life of one thread; its affinity ends with it."""
        try:
            os.sched_setaffinity(0, {cpu})
            self.line.wait()
        except OSError as error:
            self.refused.append(f"CPU {cpu} may not be used by this process: {error.strerror}")
            self.line.abort()
            return
        except threading.BrokenBarrierError:
            return
        squeeze = zlib.compressobj(zlib.Z_BEST_SPEED)
        try:
            self.seen[cpu] = _timed(squeeze)
        finally:
            self._ended.append(cpu)
        while len(self._ended) < self.size:  # whoever is still measured keeps this neighbour
            _round(squeeze)


def _timed(squeeze: zlib._Compress) -> CpuPace:
    _round(squeeze)  # the clock rises, caches fill
    rounds = [_round(squeeze) for _ in range(ROUNDS)]
    fastest_s = min(cpu_s for _, cpu_s in rounds)
    on_cpu = sum(cpu_s for _, cpu_s in rounds) / sum(wall_s for wall_s, _ in rounds)
    return CpuPace(len(TEXT) / 1e6 / fastest_s, min(on_cpu, 1.0))


def _round(squeeze: zlib._Compress) -> tuple[float, float]:
    """Seconds of wall clock and of CPU time for the same work each time: the flush makes the compressor forget."""
    wall_s, cpu_s = time.monotonic(), time.thread_time()
    squeeze.compress(TEXT)
    squeeze.flush(zlib.Z_FULL_FLUSH)
    return time.monotonic() - wall_s, time.thread_time() - cpu_s
