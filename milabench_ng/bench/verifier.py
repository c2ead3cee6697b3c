"""Compares what steps come to with what they must come to, on the device, and tells the counts once a slice.

A check costs a reduction and a comparison of a few words, and nothing waits for it.
"""

from __future__ import annotations

import time
from collections import Counter

import torch
from torch import Tensor

from milabench_ng.bench.channel import Channel
from milabench_ng.model.events import Checked, Mismatch, WorkUnit
from milabench_ng.records.verified import MOST_TOLD


class Verifier:
    """The checks of one process."""

    def __init__(self, channel: Channel, rank: int) -> None:
        self._channel = channel
        self._rank = rank
        self._unit: WorkUnit = "TFLOP"
        self._values = ""
        self._known: dict[str, Tensor] = {}
        self._times: Counter[str] = Counter()
        """Checks so far, by what is compared."""
        self._pending: list[tuple[str, int, Tensor]] = []
        """Whose outcome was not read: what, which check, and 0 if it was right."""
        self._work = 0.0
        self._wrong = self._told = 0

    def begin(self, unit: WorkUnit, values: str) -> None:
        """Say what work is counted in, and which data it is done on, in words."""
        self._unit, self._values = unit, values

    def know(self, what: str, result: Tensor) -> None:
        """Compare with ``result`` from now on: words of integers, which no later step may change."""
        self._known[what] = result.clone()

    def compare(self, what: str, result: Tensor, work: float = 0.0) -> None:
        """Compare ``result`` with what is known. ``work``: what went into it since the last check, in the unit."""
        self.note(what, (result != self._known[what]).sum(), work)

    def note(self, what: str, wrong: Tensor, work: float = 0.0) -> None:
        """Note a check that found ``wrong`` (0: none) words that are not what they must be."""
        self._times[what] += 1
        self._pending.append((what, self._times[what], wrong))
        self._work += work

    def report(self) -> None:
        """Tell what was checked up to here; the device must be idle, or it is waited for."""
        if not self._pending:
            return
        now = time.monotonic()
        for (what, check, _), wrong in zip(self._pending, _counts(self._pending), strict=True):
            if not wrong:
                continue
            self._wrong += 1
            if self._told < MOST_TOLD:
                self._told += 1
                self._channel.send(Mismatch(rank=self._rank, what=what, check=check, time_s=now))
        self._pending.clear()
        self._channel.send(
            Checked(
                rank=self._rank,
                unit=self._unit,
                values=self._values,
                checks=self._times.total(),
                work=self._work,
                wrong=self._wrong,
            )
        )


def _counts(pending: list[tuple[str, int, Tensor]]) -> list[int]:
    """Read all outcomes at once."""
    counts: list[int] = torch.stack([wrong for _, _, wrong in pending]).tolist()
    return counts
