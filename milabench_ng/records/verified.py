"""Work whose results were compared with what they must be, and what that says of errors. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from milabench_ng.model.bounds import Amount, Moment, WholeNumber
from milabench_ng.model.events import WorkUnit

MOST_TOLD = 8
"""Mismatches of a launch that are told one by one; all are counted."""
_NORMAL = 1.6448536
"""The 95 % quantile of the normal distribution."""
_SCALES: dict[WorkUnit, tuple[str, ...]] = {
    "TFLOP": ("TFLOP", "PFLOP", "EFLOP", "ZFLOP"),
    "GB": ("GB", "TB", "PB", "EB"),
}
"""Each is a thousand times the one before."""


class Mismatched(msgspec.Struct, frozen=True):
    """A result that was not the one that it must be."""

    what: str
    check: WholeNumber
    """Which check of it: the first is 1."""
    time_s: Moment
    """Monotonic, as the slices: at the end of the slice that it was in."""


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a launch verified of its work."""

    unit: WorkUnit
    values: str
    """The data that it was done on, in words: power depends on them."""
    checks: WholeNumber
    work: Amount
    wrong: WholeNumber
    first: tuple[Mismatched, ...] = ()
    """The first mismatches."""


class VerifiedWork(msgspec.Struct, frozen=True):
    """Verified work of several processes."""

    unit: WorkUnit
    work: Amount
    wrong: WholeNumber


def totals(parts: Iterable[Verified | VerifiedWork]) -> tuple[VerifiedWork, ...]:
    """The sum for each unit."""
    sums: dict[WorkUnit, tuple[float, int]] = {}
    for part in parts:
        work, wrong = sums.get(part.unit, (0.0, 0))
        sums[part.unit] = work + part.work, wrong + part.wrong
    return tuple(VerifiedWork(unit, *sums[unit]) for unit in sums)


def sentence(found: Iterable[VerifiedWork]) -> str:
    """``"812 PFLOP, 0 mismatches (95% bound: 3.7 per EFLOP)"``; empty without any work."""
    known = [one for one in found if one.work > 0]
    if not known:
        return ""
    wrong = sum(one.wrong for one in known)
    done = " and ".join(_amount(one.work, one.unit) for one in known)
    bounds = " and ".join(_per(one) for one in known)
    return f"{done}, {wrong:,} mismatch{'' if wrong == 1 else 'es'} (95% bound: {bounds})"


def _amount(work: float, unit: WorkUnit) -> str:
    place = _place(work)
    return f"{work / 1000**place:.3g} {_SCALES[unit][place]}"


def _per(found: VerifiedWork) -> str:
    """The upper 95 % bound of the errors, if they come at random, in a thousand times the unit of the amount."""
    scales = _SCALES[found.unit]
    place = min(_place(found.work) + 1, len(scales) - 1)
    errors = poisson_limit(found.wrong) / (found.work / 1000**place)
    told = f"{errors:.2g}" if errors < 99.5 else f"{float(f'{errors:.2g}'):,.0f}"
    return f"{told} per {scales[place]}"


def _place(work: float) -> int:
    """How many thousands its unit is: at most two, so that there is one above."""
    return max(0, min(2, int(math.log10(work) // 3)))


def poisson_limit(seen: int) -> float:
    """The mean of a Poisson distribution that shows at most ``seen`` events with a probability of 5 %.

    Exact for none (the rule of three); otherwise within 0.4 % of it (Wilson and Hilferty, 1931).
    """
    if seen == 0:
        return -math.log(0.05)
    count = seen + 1
    return count * (1 - 1 / (9 * count) + _NORMAL / (3 * math.sqrt(count))) ** 3
