"""How stable the order of the bids is: varies each weight and assumption by +-20 %. Pure.

It uses the rates as they are; the significance of differences is a matter for the ranking. `leave_one_out` says what
the order is without a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from milabench_ng.tender.ownership import NodePower, Terms, ownership

STEP = 0.2


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """One bid, as far as the order depends on it."""

    name: str
    logs: dict[str, float]
    """Natural logarithm of a device's rate, by ranked test."""
    weights: dict[str, float]
    devices: int
    """In a node."""
    price: float
    power: NodePower | None
    """None if energy is not counted."""
    maintenance_per_year: float


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One assumption changed."""

    what: str
    order: tuple[str, ...]
    """The bids, cheapest first."""
    same: bool
    """Whether the order is the same as without the change."""
    same_winner: bool
    lead_pct: float
    """By how much the second is more expensive than the first, in percent."""


class Stability(msgspec.Struct, frozen=True, kw_only=True):
    """The order and all changes."""

    order: tuple[str, ...]
    lead_pct: float
    changes: tuple[Change, ...]

    @property
    def turning(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if not change.same_winner)


def stability(worths: Sequence[Worth], terms: Terms | None) -> Stability:
    """Vary everything that the order rests on; ``terms`` is None if the order is by price alone."""
    order, lead = _order(worths, terms)
    changes = []
    for what, changed, under in _variations(worths, terms):
        other, other_lead = _order(changed, under)
        changes.append(
            Change(what=what, order=other, same=other == order, same_winner=other[0] == order[0], lead_pct=other_lead)
        )
    return Stability(order=order, lead_pct=lead, changes=tuple(changes))


def per_throughput(worth: Worth, terms: Terms | None) -> float:
    """What a unit of throughput costs; infinite if no test is left."""
    total = math.fsum(worth.weights.values())
    if not total:
        return math.inf
    done = worth.devices * math.exp(math.fsum(worth.weights[test] * log for test, log in worth.logs.items()) / total)
    if terms is None or worth.power is None:
        return worth.price / done
    return ownership(worth.price, worth.power, worth.maintenance_per_year, terms).total / done


def _order(worths: Sequence[Worth], terms: Terms | None) -> tuple[tuple[str, ...], float]:
    costs = sorted((per_throughput(worth, terms), worth.name) for worth in worths)
    return tuple(name for _, name in costs), 100 * (costs[1][0] / costs[0][0] - 1)


Variation = tuple[str, Sequence[Worth], Terms | None]


def _variations(worths: Sequence[Worth], terms: Terms | None) -> Iterator[Variation]:
    for test in dict.fromkeys(label for worth in worths for label in worth.weights):
        for factor in (1 - STEP, 1 + STEP):
            yield f"weight of {test} {factor - 1:+.0%}", [_weighing(each, test, factor) for each in worths], terms
    yield from _each(worths, terms, "price", lambda each, factor: replace(each, price=each.price * factor))
    if terms is None:
        return
    for key in ("years", "tariff_per_kwh", "pue", "utilization"):
        for factor in (1 - STEP, 1 + STEP):
            value = _plausible(key, getattr(terms, key) * factor)
            yield f"{key} {factor - 1:+.0%}", worths, replace(terms, **{key: value})
    yield from _each(worths, terms, "power", _powered)
    yield from _each(worths, terms, "maintenance", _maintained)


def _each(
    worths: Sequence[Worth], terms: Terms | None, what: str, change: Callable[[Worth, float], Worth]
) -> Iterator[Variation]:
    """Change one bid at a time: changing all at once would not affect the order."""
    for index, one in enumerate(worths):
        for factor in (1 - STEP, 1 + STEP):
            changed = [*worths[:index], change(one, factor), *worths[index + 1 :]]
            yield f"{what} of {one.name} {factor - 1:+.0%}", changed, terms


def _weighing(worth: Worth, test: str, factor: float) -> Worth:
    if test not in worth.weights:
        return worth
    return replace(worth, weights=worth.weights | {test: worth.weights[test] * factor})


def _powered(worth: Worth, factor: float) -> Worth:
    if worth.power is None:
        return worth
    power = replace(worth.power, load_w=worth.power.load_w * factor, idle_w=worth.power.idle_w * factor)
    return replace(worth, power=power)


def _maintained(worth: Worth, factor: float) -> Worth:
    return replace(worth, maintenance_per_year=worth.maintenance_per_year * factor)


def _plausible(key: str, value: float) -> float:
    return min(value, 1.0) if key == "utilization" else max(value, 1.0) if key == "pue" else value
