"""Total cost of a node over the years: price, energy and maintenance. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.energy_cost import HOURS_PER_YEAR

Boundary = Literal["given", "GPUs only, measured"]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The buyer's assumptions."""

    years: float
    tariff_per_kwh: float
    """Price of a kWh, in the currency of the bids."""
    pue: float
    """Power usage effectiveness: energy of the data centre over that of its machines; at least 1."""
    utilization: float
    """Share of the time for which the node works, 0 to 1."""


class NodePower(msgspec.Struct, frozen=True, kw_only=True):
    """Power of one node, in watts."""

    load_w: float
    idle_w: float
    boundary: Boundary
    """What the figures include: the whole node as given, or only the GPUs as measured."""


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one node over the years, in the currency of its price."""

    price: float
    energy_kwh: float
    """At the data centre's meter."""
    energy: float
    maintenance: float
    boundary: Boundary

    @property
    def total(self) -> float:
        """The sum of price, energy and maintenance."""
        return self.price + self.energy + self.maintenance


def ownership(price: float, power: NodePower, maintenance_per_year: float, terms: Terms) -> Ownership:
    """Total cost of one node: ``price + years * (kW * 8766 h * PUE * tariff + maintenance)``."""
    average_w = power.load_w * terms.utilization + power.idle_w * (1 - terms.utilization)
    kwh = average_w / 1000 * HOURS_PER_YEAR * terms.years * terms.pue
    return Ownership(
        price=price,
        energy_kwh=kwh,
        energy=kwh * terms.tariff_per_kwh,
        maintenance=maintenance_per_year * terms.years,
        boundary=power.boundary,
    )
