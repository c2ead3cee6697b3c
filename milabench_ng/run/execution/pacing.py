"""Measures the host pace: a fixed, short computation on all cores of a batch's shares at once.

The computation is the fast level of deflate over the same 128 KiB. It uses tables, branches and byte matching,
like decoders and loaders, and releases the interpreter lock, so that threads of this process are enough. Next to a busy
sibling thread it slows down much as JPEG decoding does; SHA-256, a chain of arithmetic in the newest CPUs' own
instructions, hardly does. It does not show memory bandwidth.
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
"""Pause between bursts: a neighbour that works for a moment spoils one of them, not their median."""
EDGE_S = 0.8
"""Total time at one edge of a batch, as measured on 2 to 32 CPUs."""
ROUNDS = 3
"""Timed rounds per burst; the fastest counts."""
TEXT = hashlib.shake_128(b"host pace").digest(128 << 10).translate(bytes(32 + i * i // 2048 for i in range(256)))
"""Letters with the uneven frequencies of a text, so that there is something to match and encode."""
PATIENCE_S = 10.0
"""Limit for all threads of a burst to get on their CPUs; a process with real-time priority can keep one away."""

Burst = Callable[[Sequence[int]], Mapping[int, CpuPace]]


async def read_host_pace(shares: Mapping[str, Sequence[int]], burst: Burst) -> dict[str, HostPace]:
    """Measure the pace of each share's CPUs, by slot: some 50 ms of work per CPU in less than a second.

    ``burst`` works on all given CPUs at once. The event loop runs between bursts. If one of the CPUs may not be used,
    the result has the reason instead of figures.
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
    return {slot: pace_of(share, seen, LIBRARY) for slot, share in shares.items()}


def work_at_once(cpus: Sequence[int]) -> dict[int, CpuPace]:
    """Run one burst: a thread on each of ``cpus``, all at once. Raises OSError if that is impossible."""
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
        """The body of one thread; its affinity ends with it."""
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
        while len(self._ended) < self.size:  # threads still being measured keep this neighbour
            _round(squeeze)


def _timed(squeeze: zlib._Compress) -> CpuPace:
    _round(squeeze)  # the clock rises, caches fill
    rounds = [_round(squeeze) for _ in range(ROUNDS)]
    fastest_s = min(cpu_s for _, cpu_s in rounds)
    on_cpu = sum(cpu_s for _, cpu_s in rounds) / sum(wall_s for wall_s, _ in rounds)
    return CpuPace(len(TEXT) / 1e6 / fastest_s, min(on_cpu, 1.0))


def _round(squeeze: zlib._Compress) -> tuple[float, float]:
    """Wall-clock and CPU seconds for the same work each time: the flush resets the compressor."""
    wall_s, cpu_s = time.monotonic(), time.thread_time()
    squeeze.compress(TEXT)
    squeeze.flush(zlib.Z_FULL_FLUSH)
    return time.monotonic() - wall_s, time.thread_time() - cpu_s
