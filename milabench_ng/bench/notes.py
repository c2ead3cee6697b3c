"""What a workload notes of its steps, from slice to slice: sums, such as the seconds of their parts, and latencies."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Mark = torch.cuda.Event


class Notes:
    """Adds up what is noted between two slices."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._latencies: defaultdict[str, Counter[float]] = defaultdict(Counter)
        self._spans: list[tuple[str, Mark, Mark]] = []
        """Work on the GPU that may not be done, between two marks on its stream."""
        self._postponed: list[Callable[[], None]] = []

    def add(self, name: str, value: float) -> None:
        self._sums[name] += value

    def now_s(self) -> float:
        """The time, in seconds of the clock that latencies are of."""
        return time.monotonic()

    def latency(self, name: str, seconds: float, count: int = 1) -> None:
        """Note that ``count`` items took so many ``seconds``: ``name`` says what of them, as the workload declares."""
        self._latencies[name][seconds] += count

    def postpone(self, note: Callable[[], None]) -> None:
        """Have ``note`` called by `catch_up`, or before the slice ends: what it costs then keeps no device waiting."""
        self._postponed.append(note)

    def catch_up(self) -> None:
        """Note what was postponed: call this while the device works."""
        postponed, self._postponed = self._postponed, []
        for note in postponed:
            note()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds of the body: on a GPU, those of its work on the current stream, which are read later."""
        if not self._cuda:
            since = time.perf_counter()
            yield
            self.add(name, time.perf_counter() - since)
            return
        begin, end = (Mark(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        yield
        end.record()
        self._spans.append((name, begin, end))

    def take(self) -> dict[str, float]:
        """The sums since the last call. Waits for what is timed, which costs nothing on an idle device."""
        self.catch_up()
        for name, begin, end in self._spans:
            end.synchronize()
            self.add(name, begin.elapsed_time(end) / 1e3)
        taken = dict(self._sums)
        self._spans.clear()
        self._sums.clear()
        return taken

    def take_latencies(self) -> dict[str, Counter[float]]:
        """The latencies since the last call, by name: how many there were of so many seconds."""
        self.catch_up()
        taken = dict(self._latencies)
        self._latencies.clear()
        return taken
