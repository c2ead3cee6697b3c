"""Whether a rank's slices are such as a meter makes: one after the other, without gaps."""

from __future__ import annotations

from collections.abc import Sequence

from milabench_ng.records.latency import batches
from milabench_ng.records.window import SliceRow

_GAP_S = 1e-6
"""For rounding: each slice begins at the very moment the previous one ends. Time between them would be in no rate."""
_EARLY_S = 5.0
"""How long after the start line the first slice may begin: workers read the command only when they get to it."""


def bad_row(rows: Sequence[SliceRow], start_s: float | None) -> str | None:
    """The first defect in a rank's slices that no meter produces."""
    end = start_s
    for number, row in enumerate(rows):
        if row.length_s <= 0 or row.count < 0 or row.steps < 1 or not 0 <= row.wait_s <= row.length_s + _GAP_S:
            return f"slice {number} is impossible: {row.length_s} s, {row.count} items, {row.steps} steps"
        timed = batches(row.latency)
        if timed > row.steps:
            return f"slice {number} is impossible: the latencies of {timed} batches in {row.steps} steps"
        for name, latency in row.item_latency.items():
            if batches(latency) > row.count:
                return f"slice {number} is impossible: {batches(latency)} latencies ({name}) of {row.count} items"
        gap = 0.0 if end is None else row.start_s - end
        if not -_GAP_S <= gap <= (_GAP_S if number else _EARLY_S):
            return f"slice {number} begins {gap:.4g} s after {'the one before it' if number else 'the start line'}"
        end = row.end_s
    return None
