"""Launches whose devices and loaders keep exact paces, all at the same time: prints their rates over the true ones.

    python feeding_run.py RATIO[+STALL_S] ...

A device would do RATIO times as many samples per second as its loader makes. STALL_S: its first step takes so long, as
with a library that tunes itself. A line each: the case, the rate over the true one, when the window began (seconds
after the start), and the samples made ahead at its edges.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from recording import Recording, bench_on
from torch.utils.data import Dataset, get_worker_info

from milabench_ng.bench import Bench
from milabench_ng.model.events import Event, Full, Slice
from milabench_ng.records.window import SliceRow, WindowRule, averaging_window, backlog_edges, rate

PROCESSES, BATCH, PER_SECOND = 16, 32, 1000.0
"""Of the loader: 32 batches may lie ready, 11 % of what a window holds."""
RULE = WindowRule()
WAIT_S = 3.0
"""Between ready and start: enough to fill all buffers."""
OVERSLEPT_S = 0.02
"""A sleep may end so late; who was idle for longer gets no time back."""


class Pace:
    """Ends each piece of work a fixed time after it began, or after the last one if that has just ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.due = 0.0

    def keep(self) -> None:
        now = time.monotonic()
        self.due = (self.due if now - self.due < OVERSLEPT_S else now) + self.seconds
        time.sleep(max(0.0, self.due - now))


class Samples(Dataset[Any]):
    """Each loader process makes its part of the samples per second; they begin one after another, in order."""

    def __init__(self) -> None:
        self.pace = Pace(BATCH * PROCESSES / PER_SECOND)
        self.begun = False

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        worker = get_worker_info()
        if worker is not None and not self.begun:
            self.begun = True
            time.sleep(worker.id * BATCH / PER_SECOND)
        self.pace.keep()
        return indices


class UntilFull(Recording):
    """Starts late, as a tenant whose neighbours are not ready; ends when the window is full, or after a minute."""

    def send(self, event: Event) -> None:
        super().send(event)
        if isinstance(event, Full):
            self.last = 1

    def wait_for_start(self) -> None:
        time.sleep(WAIT_S)
        self.until = time.monotonic() + 60.0

    def ended(self, steps: int) -> bool:  # noqa: ARG002  # the protocol's signature
        return bool(self.last) or time.monotonic() > self.until


def run(case: str) -> str:
    ratio, stall_s = (float(part) for part in f"{case}+0".split("+")[:2])
    channel = UntilFull()
    bench: Bench = bench_on(channel, workers=PROCESSES, sample_duration=0.5, rule=RULE)
    device = Pace(BATCH / (ratio * PER_SECOND))
    for step, _ in enumerate(bench.measure(bench.loader(BATCH, samples=Samples()))):
        time.sleep(stall_s if step == 0 else 0.0)
        device.keep()
    rows = [SliceRow.of(event) for event in channel.all(Slice)]
    window = averaging_window([rows], channel.one(Full).time_s, RULE)
    assert window is not None
    true = min(ratio, 1.0) * PER_SECOND
    edges = backlog_edges([row for row in rows if window.holds(row)]) or ()
    return " ".join(map(str, (case, rate(rows, window) / true, window.start_s - rows[0].start_s, *edges)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.sched_getaffinity = lambda _: set(range(PROCESSES))  # type: ignore[assignment,misc]  # they sleep
    children = []
    for case in sys.argv[1:]:
        children.append(os.fork())
        if children[-1] == 0:
            os.write(1, f"{run(case)}\n".encode())
            os._exit(0)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
