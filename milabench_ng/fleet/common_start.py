"""A common start by wall clock: all nodes begin at one moment, so that power and cooling see them all at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from milabench_ng.fleet.ledger import Clock

CLOSE_S = 1.0
"""Clocks that may be off by more make no common start: power supplies and fans answer within seconds."""


def loose_clocks(clocks: Iterable[Clock]) -> tuple[str, ...]:
    """Nodes whose clock is not known to be close, each with the reason."""
    return tuple(f"{one.node}: {why}" for one in clocks if (why := _why_loose(one)))


def _why_loose(clock: Clock) -> str:
    if not clock.synchronized:
        return "no NTP client sets its clock"
    off = abs(clock.offset_s) + clock.error_s
    return f"its clock may be off by {off:.1f} s" if off > CLOSE_S else ""
