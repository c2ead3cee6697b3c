"""Launches that were measured again: after they had lost a neighbour, or after an interruption. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from milabench_ng.model.grouping import grouped
from milabench_ng.records.marks import Mark

T = TypeVar("T")


class Good(NamedTuple, Generic[T]):
    """A launch that succeeded."""

    result: T
    launch: Hashable
    """Which launch of the plan it is."""
    begun: datetime
    marks: Sequence[Mark]


class Tried(NamedTuple, Generic[T]):
    """An attempt that left a record."""

    result: T
    launch: Hashable
    """Which launch of the plan it is."""
    run: str | None
    begun: datetime
    """All launches of a batch begin at once."""
    interrupted: bool


def lost_neighbours(marks: Iterable[Mark]) -> bool:
    """Whether the marks of a launch say that it lost neighbours."""
    return any(mark.kind == "neighbours lost" for mark in marks)


def superseded(good: Sequence[Good[T]]) -> list[T]:
    """The results of launches that had lost neighbours and were measured again later."""
    last: dict[Hashable, datetime] = {}
    for one in good:
        last[one.launch] = max(last.get(one.launch, one.begun), one.begun)
    return [one.result for one in good if lost_neighbours(one.marks) and one.begun < last[one.launch]]


def made_up_for(tried: Sequence[Tried[T]]) -> list[T]:
    """The attempts of interrupted batches that were measured again whole: every launch of them, to its end."""
    last: dict[Hashable, datetime] = {}
    for one in tried:
        if not one.interrupted:
            last[one.launch] = max(last.get(one.launch, one.begun), one.begun)
    batches = grouped([one for one in tried if one.interrupted], lambda one: (one.run, one.begun))
    whole = [batch for batch in batches.values() if all(last.get(one.launch, one.begun) > one.begun for one in batch)]
    return [one.result for batch in whole for one in batch]
