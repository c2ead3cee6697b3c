"""Costs. Pure. Lower is better.

The price per point is price / score, as in 2020; a price per reference node's worth is price / ratio of throughputs.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.score import Score
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.model.errors import InputError

PricePer = Literal["node", "gpu"]


class PerReference(msgspec.Struct, frozen=True, kw_only=True):
    """The cost, on this node, of as much throughput as one reference node has."""

    name: str
    """Name of the reference."""
    value: float
    """Price of a node over ``ratio_per_node``."""
    interval: Interval | None
    partial: str = ""
    """Which of the weighted tests it is over; empty if over all."""
    indicative: tuple[str, ...]
    """Why the value is only indicative; empty if it is not."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """A price, and the resulting cost per unit of score. In dollars, or whatever currency was given."""

    amount: float
    per: PricePer
    per_node: float
    rpp: float | None
    """Price of a node or a device over its score; None without a complete score above 0."""
    interval: Interval | None = None
    """The interval of ``rpp``; None if the score has none."""
    per_reference: tuple[PerReference, ...] = ()
    """One per baseline with a ratio."""


def cost(
    amount: float, per: PricePer, score: Score | None, devices: int, comparisons: tuple[Comparison, ...] = ()
) -> Price:
    """RPP of a node (``per`` node) or of one of its ``devices`` (``per`` gpu), and the price of each reference node.

    A device's value is that of all its tenants.
    """
    if not (amount > 0 and math.isfinite(amount)):
        raise InputError(f"--price: expected an amount above 0, got {amount:g}")
    each = score.per_device if score is not None and score.status == "complete" else None
    value = each * (score.devices / (1 if per == "node" else devices)) if score is not None and each else None
    per_node = amount if per == "node" else amount * devices
    known = score.interval if score is not None and value else None
    return Price(
        amount=amount,
        per=per,
        per_node=per_node,
        rpp=amount / value if value else None,
        interval=known.scaled(value / known.value / amount).inverse if known and value else None,
        per_reference=tuple(_per_reference(per_node, other) for other in comparisons if other.ratio_per_node),
    )


def _per_reference(per_node: float, other: Comparison) -> PerReference:
    ratio = other.ratio_per_node or math.nan
    known = other.node_interval
    return PerReference(
        name=other.name,
        value=per_node / ratio,
        interval=known.scaled(1 / per_node).inverse if known else None,
        partial=f"over {other.tests} of {other.of} tests" if other.tests < other.of else "",
        indicative=other.indicative,
    )
