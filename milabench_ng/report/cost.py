"""Money. Pure. RPP = price / score, as in 2020: lower is better."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.report.intervals import Interval
from milabench_ng.report.score import Score

PricePer = Literal["node", "gpu"]


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """A price and what a unit of score costs at it. In dollars, or whatever currency was given."""

    amount: float
    per: PricePer
    rpp: float | None
    """Price of a node over ``per_node``, or of a device over ``per_device``; None without a score above 0."""
    interval: Interval | None = None
    """Of ``rpp``; None where the score has none."""


def cost(amount: float, per: PricePer, score: Score | None) -> Price:
    """RPP of a node (``per`` node) or of one of its devices (``per`` gpu)."""
    if not (amount > 0 and math.isfinite(amount)):
        raise InputError(f"--price {amount}: it must be a number above 0")
    value = None if score is None else score.per_node if per == "node" else score.per_device
    known = score.interval if score is not None else None
    if known is not None and per == "node" and score is not None:
        known = known.scaled(score.devices)
    return Price(
        amount=amount,
        per=per,
        rpp=amount / value if value else None,
        interval=known.inverse.scaled(amount) if known else None,
    )
