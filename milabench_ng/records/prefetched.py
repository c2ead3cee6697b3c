"""Items of a window that loader processes had made before it: its rate is so much too high, and a mark says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from milabench_ng.model.limits import most
from milabench_ng.records.marks import Mark
from milabench_ng.records.window import SliceRow, Window, worked_off

LIMIT = most("prefetched items")


def prefetched(ranks: Iterable[tuple[str, Sequence[SliceRow]]], window: Window | None) -> Iterator[Mark]:
    """The marks of a launch; ``ranks``: the slot and the slices of each."""
    if window is None:
        return
    for slot, rows in ranks:
        inside = [row for row in rows if window.holds(row)]
        items, of = worked_off(inside), sum(row.count for row in inside)
        if items > LIMIT * of:
            yield Mark(kind="prefetched items", device=slot, value=round(items / of, 4), limit=LIMIT)
