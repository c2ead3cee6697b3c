"""A bids file: results, prices and assumptions. Strict: unknown keys are errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from milabench_ng.model.bounds import LARGEST, Amount
from milabench_ng.model.files import convert_json, parse_json, read_content, refuse, require_file
from milabench_ng.model.known_files import refuse_other
from milabench_ng.model.plain import plain, short
from milabench_ng.tender.ownership import Terms
from milabench_ng.verification.opening import is_bundle

BIDS_SCHEMA = 1
BidPrice = Annotated[float, Meta(ge=1e-6, le=LARGEST)]
"""Far enough above 0 that no quotient of two prices overflows."""


class Bid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One offer."""

    results: str
    """A bundle, a result folder or a summary; relative to the bids file."""
    signed_by: str | None = None
    """The name in the file of allowed signers that must have signed this bid; None for any of them."""
    price: BidPrice
    """Per node."""
    watts_load: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Power of a whole node under load; None: the measured power of its GPUs, if known."""
    watts_idle: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    maintenance_per_year: Amount = 0.0
    """Per node."""


class Bids(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All offers and the buyer's assumptions."""

    reference: str
    """The node that others are measured against: a folder, a bundle, a summary or a shipped baseline."""
    bids: Annotated[dict[str, Bid], Meta(min_length=1)]
    currency: str = "$"
    years: Annotated[float, Meta(gt=0, le=100)] = 5.0
    tariff_per_kwh: Annotated[float, Meta(ge=0, le=1000)] | None = None
    """If None, the cost of energy is left out, and the output says so."""
    pue: Annotated[float, Meta(ge=1, le=10)] = 1.0
    utilization: Annotated[float, Meta(ge=0, le=1)] = 1.0
    nodes: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    """How many nodes to buy; alternatively, give ``budget``."""
    budget: BidPrice | None = None
    """The limit on the total price of the nodes, without energy and maintenance."""
    weights: str | None = None
    margin: Annotated[float, Meta(gt=0, le=0.5)] = 0.02

    @property
    def terms(self) -> Terms | None:
        """The terms; None if energy is not counted."""
        if self.tariff_per_kwh is None:
            return None
        return Terms(years=self.years, tariff_per_kwh=self.tariff_per_kwh, pue=self.pue, utilization=self.utilization)


FORM = '{"reference": "v100", "bids": {"acme": {"results": "acme/", "price": 250000}}}'


def read_bids(path: Path) -> Bids:
    """Read and validate a bids file. Raises InputError with file and position."""
    inside = path / "bids.json"
    require_file(path, f"Give {plain(inside)}" if os.path.isfile(inside) else "Write one with mnb tender init")
    if is_bundle(path):
        refuse(path, "a bundle, not a bids file. Name it as results in a file that mnb tender init writes")
    return decode_bids(read_content(path), str(path))


def decode_bids(content: bytes, source: str) -> Bids:
    """Decode bids from JSON; ``source`` is the file's name, for errors."""
    raw = parse_json(content, source)
    refuse_other(raw, "bids", source)
    advice = f"expected {FORM}"
    offers = raw.get("bids") if isinstance(raw, dict) else None
    if isinstance(offers, dict):  # first each one alone: decoded together, an error would not name the bid
        for name, offer in offers.items():
            convert_json(offer, Bid, _place(source, name), advice)
    made = convert_json(raw, Bids, source, advice)
    if made.nodes is not None and made.budget is not None:
        refuse(source, "both nodes and budget are given. Give one of them")
    for name, bid in made.bids.items():
        if bid.watts_load is not None and bid.watts_idle is None and made.utilization < 1:
            reason = f"utilization is {made.utilization:g}, so watts_load needs watts_idle. Give both"
            refuse(_place(source, name), reason)
        if bid.watts_load is not None and (bid.watts_idle or 0) > bid.watts_load:
            refuse(_place(source, name), "watts_idle is above watts_load. Give the power without and with load")
        if bid.watts_load is None and bid.watts_idle is not None:
            reason = (
                "watts_idle without watts_load. Give both for the whole node, or neither: the GPUs' power is measured"
            )
            refuse(_place(source, name), reason)
    return made


def _place(source: str, name: str) -> str:
    return f"{source}: bid {short(repr(name))}"
