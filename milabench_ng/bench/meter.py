"""The meter: cuts the work of a launch into slices.

A slice ends with the first step that ends at least the sample duration after the slice began; one device
synchronisation closes it, and the next one begins at that moment, so that no time is lost between slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from milabench_ng.bench.channel import Channel
from milabench_ng.model.events import Full, Slice
from milabench_ng.model.stats import mean
from milabench_ng.records.latency import MOST, histogram
from milabench_ng.records.window import SliceRow, WindowRule, is_full, settled_after


class Meter:
    """Counts steps and items of one process and reports them."""

    def __init__(
        self,
        channel: Channel,
        *,
        rank: int,
        clock: Callable[[], float],
        synchronize: Callable[[], None],
        on_slice: Callable[[], None],
        sample_duration: float,
        max_count: int,
        rule: WindowRule,
        take_notes: Callable[[], dict[str, float]] = dict,
        take_latencies: Callable[[], dict[str, Counter[float]]] = dict,
    ) -> None:
        """``clock`` in seconds; ``on_slice`` is called after each slice, while the device is idle.

        ``take_notes``: sums of what was noted since the last call, by name. ``take_latencies``: the same of the
        latencies of items.
        """
        self.channel = channel
        self.rank = rank
        self.clock = clock
        self.synchronize = synchronize
        self.on_slice = on_slice
        self.sample_duration = sample_duration
        self.max_count = max_count
        self.rule = rule
        self.take_notes = take_notes
        self.take_latencies = take_latencies
        self.count = 0
        self.steps = 0
        self._full = False
        self._slice_backlogs: list[float] = []
        self._slice_latencies: list[float] = []
        self._settled: list[SliceRow] = []
        """The slices that began after settling: only these may be in the window."""

    def start(self) -> None:
        """Begin the first slice."""
        self.take_notes()  # those of warming up
        self.take_latencies()
        self._slice_start = self.clock()
        self._settled_s = self._slice_start + self.rule.settle_s
        self._reset()

    def note_latency(self, seconds: float) -> None:
        """Note how long the batch of the current step took, from the call to its outputs on the host."""
        self._slice_latencies.append(seconds)

    def step(self, count: int, wait_s: float, backlog: float | None = None) -> None:
        """Count a step of ``count`` items, done on the host, of which ``wait_s`` was spent waiting for data.

        ``backlog``: items made but not yet requested when the step's batch was requested; None if nothing is made
        ahead.
        """
        self.steps += 1
        self.count += count
        self._slice_steps += 1
        self._slice_count += count
        self._slice_wait += wait_s
        if backlog is not None:
            self._slice_backlogs.append(backlog)
        if self.clock() - self._slice_start >= self.sample_duration:
            self._close()

    def _close(self) -> None:
        self.synchronize()
        end = self.clock()
        of_items = self.take_latencies()
        most = MOST // (1 + len(of_items))
        event = Slice(
            rank=self.rank,
            start_s=self._slice_start,
            length_s=end - self._slice_start,
            count=self._slice_count,
            steps=self._slice_steps,
            wait_s=self._slice_wait,
            backlog=round(mean(self._slice_backlogs)) if self._slice_backlogs else None,
            latency=histogram(self._slice_latencies, most),
            notes=self.take_notes(),
            item_latency={name: histogram(seconds, most) for name, seconds in of_items.items()},
        )
        self.channel.send(event)
        first = self.steps == self._slice_steps
        self._settled_s = settled_after(self._settled_s, self._slice_start, end, self.rule, first=first)
        if self._slice_start >= self._settled_s:
            self._settled.append(SliceRow.of(event))
        self._say_full(end)
        self.on_slice()
        self.channel.poll(self.steps)
        self._slice_start = end
        self._reset()

    def _reset(self) -> None:
        self._slice_steps = 0
        self._slice_count = 0
        self._slice_wait = 0.0
        self._slice_backlogs = []
        self._slice_latencies = []

    def _say_full(self, now: float) -> None:
        """Say ``full`` if the count is done and a stop from now on would leave a full window of steady work."""
        if self._full or self.count < self.max_count:
            return
        if is_full(self._settled, self._settled_s, now, self.rule):
            self._full = True
            self.channel.send(Full(rank=self.rank, time_s=now, count=self.count))
