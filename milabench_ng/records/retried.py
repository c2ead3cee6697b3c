"""Launches that lost a neighbour, and that a retry measured again beside it: the later result counts. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from milabench_ng.records.marks import Mark

T = TypeVar("T")


class Good(NamedTuple, Generic[T]):
    """A launch that succeeded."""

    result: T
    launch: Hashable
    """Which launch of the plan it is."""
    begun: datetime
    marks: Sequence[Mark]


def lost_neighbours(marks: Iterable[Mark]) -> bool:
    """Whether the marks of a launch say that it lost neighbours."""
    return any(mark.kind == "neighbours lost" for mark in marks)


def superseded(good: Sequence[Good[T]]) -> list[T]:
    """The results of launches that had lost neighbours and were measured again later."""
    last: dict[Hashable, datetime] = {}
    for one in good:
        last[one.launch] = max(last.get(one.launch, one.begun), one.begun)
    return [one.result for one in good if lost_neighbours(one.marks) and one.begun < last[one.launch]]
