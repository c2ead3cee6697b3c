"""Which launches are of separate sessions: those between which hours lie. Pure.

Sessions that follow each other at once share the day, its temperature and its neighbours, as repeats do: three of them
say no more of another day than one. So time tells sessions apart, whatever began them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

SESSION_GAP_H = 6.0
"""Least hours between the starts of two launches that no other lies between, for the later one to begin a session."""


def session_starts(launches: Iterable[datetime], gap_h: float = SESSION_GAP_H) -> tuple[datetime, ...]:
    """When each separate session began, of launches that started at these moments."""
    moments = sorted(set(launches))
    gap = timedelta(hours=gap_h)
    return (*moments[:1], *(late for early, late in pairwise(moments) if late - early >= gap))


def session_at(moment: datetime, starts: Sequence[datetime]) -> int:
    """The number, from 1, of the session in which a launch started."""
    return bisect_right(starts, moment)
