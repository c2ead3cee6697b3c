"""When tokens were said: the time to the first one, the time of each later one, and whether they kept the limits.

Pure: times are given, in seconds of one clock.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from milabench_ng.workloads.modern.serving import Plan


class Said(msgspec.Struct, frozen=True):
    """What one step said."""

    first_s: float | None
    """How long ago the request came whose first token was said; None without one, or if it came before the clock."""
    next_s: tuple[tuple[float, int], ...]
    """How long ago the texts that went on had said a token, and how many of them."""
    in_time: int
    """Tokens of texts that keep both limits so far."""


class TokenTimes:
    """The clock of each slot.

    A text keeps its limits while its first token came in time, and the later ones in time on average. What was under
    way before the clock is timed from its first token after it.
    """

    def __init__(self, slots: int, *, first_limit_s: float, next_limit_s: float) -> None:
        """``first_limit_s``: from the arrival to the first token. ``next_limit_s``: of a later token, on average."""
        self._first_limit_s, self._next_limit_s = first_limit_s, next_limit_s
        self._arrived_s: dict[int, float] = {}
        self._began_s = np.full(slots, np.nan)
        """When each slot's text said the first token that is timed."""
        self._last_s = np.full(slots, np.nan)
        self._since = np.zeros(slots)
        """Tokens after that one."""
        self._came_in_time = np.ones(slots, bool)
        """Whether its first token did."""

    def step(self, plan: Plan, now_s: float) -> Said:
        """What the step of ``plan`` said, which ended at ``now_s``."""
        speaking = plan.position >= 0
        timed = speaking & ~np.isnan(self._last_s)
        waited = Counter((now_s - self._last_s[timed]).tolist())
        self._since[timed] += 1
        self._began_s[speaking & ~timed] = now_s
        first_s = self._begin(plan, now_s)
        said = speaking.copy()
        if plan.reading is not None and plan.reading.last:
            said[plan.reading.slot] = True
        self._last_s[said] = now_s
        kept = self._came_in_time & (now_s - self._began_s <= self._next_limit_s * self._since)
        self._arrived_s |= dict.fromkeys((request.number for request in plan.arriving), now_s)
        return Said(first_s, tuple(waited.items()), int((kept & said).sum()))

    def _begin(self, plan: Plan, now_s: float) -> float | None:
        """Begin the clock of the text that says its first token; the time since its request came."""
        if plan.reading is None or not plan.reading.last:
            return None
        slot, arrived_s = plan.reading.slot, self._arrived_s.pop(plan.reading.request.number, None)
        first_s = None if arrived_s is None else now_s - arrived_s
        self._began_s[slot], self._since[slot] = now_s, 0
        self._came_in_time[slot] = first_s is None or first_s <= self._first_limit_s
        return first_s
