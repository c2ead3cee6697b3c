"""A file of bids: whose results, at which price, under which assumptions. Strict: an unknown key is an error."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.files import read_json
from milabench_ng.report.ownership import Terms


class Bid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One offer."""

    results: str
    """A result folder or a summary; relative to the file of bids."""
    price: float
    """Of one node."""
    watts_load: float | None = None
    """Of a whole node at work; None: what its GPUs were measured at, where they were."""
    watts_idle: float | None = None
    maintenance_per_year: float = 0.0
    """Of one node."""


class Bids(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All offers and what the buyer assumes."""

    reference: str
    """What a node is measured in: a folder, a summary or a shipped baseline."""
    bids: dict[str, Bid]
    currency: str = "$"
    years: float = 5.0
    tariff_per_kwh: float | None = None
    """Without it the cost of energy is left out, and the output says so."""
    pue: float = 1.0
    utilization: float = 1.0
    nodes: int | None = None
    """How many nodes are bought; or give ``budget``."""
    budget: float | None = None
    """What may be spent on the prices of nodes."""
    weights: str | None = None
    margin: float = 0.02

    @property
    def terms(self) -> Terms | None:
        """None where energy is not counted."""
        if self.tariff_per_kwh is None:
            return None
        return Terms(years=self.years, tariff_per_kwh=self.tariff_per_kwh, pue=self.pue, utilization=self.utilization)


FORM = '{"reference": "v100", "bids": {"acme": {"results": "acme/", "price": 250000}}}'


def read_bids(path: Path) -> Bids:
    """The checked content of a file of bids."""
    try:
        made = msgspec.convert(read_json(path), Bids)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}; the form is {FORM}") from None
    _check(made, str(path))
    return made


def _check(made: Bids, where: str) -> None:
    if not made.bids:
        raise InputError(f"{where}: there is no bid; the form is {FORM}")
    if made.nodes is not None and made.budget is not None:
        raise InputError(f"{where}: both nodes and budget are given; give one of them")
    _within(made, where, "years", 0.0, 100.0)
    _within(made, where, "tariff_per_kwh", -math.inf, 1000.0)
    _within(made, where, "pue", 0.999999, 10.0)
    _within(made, where, "utilization", -1e-9, 1.0)
    _within(made, where, "margin", 0.0, 0.5)
    _within(made, where, "nodes", 0, 1_000_000)
    _within(made, where, "budget", 0.0, math.inf)
    for name, bid in made.bids.items():
        here = f"{where}: bid {name!r}"
        _within(bid, here, "price", 0.0, math.inf)
        _within(bid, here, "watts_load", 0.0, 1e6)
        _within(bid, here, "watts_idle", -1e-9, 1e6)
        _within(bid, here, "maintenance_per_year", -1e-9, math.inf)
        if bid.watts_load is not None and bid.watts_idle is None and made.utilization < 1:
            raise InputError(f"{here}: watts_load without watts_idle, and utilization is {made.utilization:g}")


def _within(holder: Bid | Bids, where: str, key: str, above: float, most: float) -> None:
    value = getattr(holder, key)
    if value is not None and not (above < value <= most and math.isfinite(value)):
        raise InputError(f"{where}: {key} is {value!r}; it must be above {max(above, 0):g} and at most {most:g}")
