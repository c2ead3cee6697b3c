"""The borders between the repeats of a run, and whether it ends at one. Pure.

The orchestrator ends runs by it, and verification sees whether they ended so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from milabench_ng.model.plan import Plan
from milabench_ng.records.ledger import AnyLedgerEvent, Attempt, LedgerLine, StoppedEarly
from milabench_ng.records.stopping import Headline, Stopping


def asked(plan: Plan, events: Sequence[AnyLedgerEvent]) -> Plan:
    """The part of ``plan`` that the rule asks for, by the ledger: all of it, unless enough was done before."""
    repeats = min((event.repeats for event in events if isinstance(event, StoppedEarly)), default=plan.repeat)
    if repeats >= plan.repeat:
        return plan
    batches = tuple(batch for batch in plan.batches if all(launch.run < repeats for launch in batch.launches))
    return msgspec.structs.replace(plan, batches=batches, repeat=repeats)


def narrow(rule: Stopping, repeats: int, known: Headline) -> StoppedEarly | None:
    """The end of the run after ``repeats`` because the interval of its headline is narrow; None if it is not."""
    if rule.width is None or known.repeats < rule.least or known.width is None or known.width > rule.width:
        return None
    detail = f"{known.figure} is known to ±{100 * known.width:.2g}% (requested: ±{100 * rule.width:.3g}%)"
    return StoppedEarly(repeats=repeats, why="narrow", detail=detail)


def spent(rule: Stopping, repeats: int, entries: Sequence[LedgerLine], now: datetime) -> StoppedEarly | None:
    """The end of the run after ``repeats`` because another is expected to end after the budget; None if it is not."""
    if rule.budget_s is None:
        return None
    end_s = expected_end_s(repeats, entries, now)
    if end_s <= rule.budget_s:
        return None
    detail = f"another repeat would end {end_s:.0f} s after the start, but the budget is {rule.budget_s:.0f} s"
    return StoppedEarly(repeats=repeats, why="budget", detail=detail)


def budget_left_s(rule: Stopping | None, entries: Sequence[LedgerLine], now: datetime) -> float:
    """Seconds of the budget that are left, at least 0; infinite without one."""
    if rule is None or rule.budget_s is None:
        return math.inf
    return max(0.0, rule.budget_s - (now - date_of(entries[0])).total_seconds())


def expected_end_s(repeats: int, entries: Sequence[LedgerLine], now: datetime) -> float:
    """Seconds from the start of the ledger to the end of another repeat, if it takes as long as the mean of those.

    Raises ValueError for a ledger without dates.
    """
    first = next((entry for entry in entries if isinstance(entry.what, Attempt)), entries[0])
    each_s = (now - date_of(first)).total_seconds() / repeats
    return (now - date_of(entries[0])).total_seconds() + each_s


def date_of(entry: LedgerLine) -> datetime:
    """When a line was written. Raises ValueError if it does not say so in UTC."""
    date = datetime.fromisoformat(entry.utc)
    if date.tzinfo is None:
        raise ValueError(f"line {entry.number + 1}: {entry.utc} is of no time zone")
    return date
