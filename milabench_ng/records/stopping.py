"""The rule that ends a run before its last repeat: as soon as its result is known well, or its time is spent."""

from __future__ import annotations

import msgspec

from milabench_ng.model.units import format_seconds

LEAST = 6
"""Fewest repeats before the interval is judged.

A run that stops when an interval looks narrow stops more often where the spread looks smaller than it is. From six
repeats on, 95 % intervals still hold the true value in more than 93 % of the runs; from three on, in 91 %
(``scripts/simulate-decisions --only narrow``).
"""


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """When a run is over, at the border of a repeat."""

    width: float | None = None
    """The half width that the 95 % interval may have, as a fraction of the value; None: it does not decide."""
    least: int = LEAST
    """Fewest repeats before the interval decides."""
    budget_s: float | None = None
    """Seconds after the run's start by which the last repeat is expected to end; None: time does not decide."""

    @property
    def text(self) -> str:
        """In words."""
        known = "until the mean rate, or the cost of neighbors, is known to"
        narrow = f"{known} ±{100 * self.width:.3g}%, at least {self.least} repeats" if self.width else ""
        budget = f"while another one fits in {format_seconds(self.budget_s)}" if self.budget_s else ""
        return ", ".join(filter(None, (narrow, budget)))


class Headline(msgspec.Struct, frozen=True):
    """The figure that a run is for."""

    figure: str
    """In words."""
    width: float | None
    """Half its 95 % interval, as a fraction of its value; None if it has no interval."""
    repeats: int = 0
    """Those behind it, in which no test lacks a rate."""
