"""The comparison of bids, as one value: what a reference node's worth of throughput costs with each."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.scoring.cost import PerReference
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.marked import Marked
from milabench_ng.tender.leave_one_out import LeaveOneOut
from milabench_ng.tender.ownership import Ownership, Terms
from milabench_ng.tender.same_work import OtherWork
from milabench_ng.tender.stability import Stability


class BidRow(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluated bid. Money is in the currency of the bids."""

    name: str
    hardware: str
    devices: int
    score_status: str
    fit: bool
    """Whether it has a complete score and fails no more often than it may: only such bids are ranked."""
    isolation: str
    failure_rate: float | None
    price: float
    ratio: float | None
    """Throughput of one of its nodes over that of a reference node."""
    ratio_interval: Interval | None
    why: str
    """Why there is no ratio or no interval; empty if there are both."""
    per_reference: PerReference | None
    """What one reference node's worth costs to buy."""
    price_per_point: float | None
    """Price of a node over its score, as in 2020: nothing is ranked by it. None for a partial score."""
    owned: Ownership | None
    """Cost over the years; None if the tariff or the power is unknown."""
    owned_per_reference: float | None
    """Cost over the years of one reference node's worth."""
    owned_interval: Interval | None
    """The range of ``owned_per_reference``: that of the ratio; prices and power are taken as exact."""
    nodes: int | None
    """How many nodes are bought."""
    total_ratio: float | None
    """Their total throughput, in reference nodes."""
    total_cost: float | None
    """Their total cost: over the years if known, else to buy."""
    rank: int | None
    """1 is the cheapest for its throughput; None if nothing can be ranked."""
    pareto: bool
    """Whether no other bid's node does as much for less, or more for the same."""
    marks: tuple[Marked, ...]
    """Marks that make its results not comparable."""


class Tender(msgspec.Struct, frozen=True, kw_only=True):
    """All bids, evaluated and ranked."""

    suite: str
    """The suite whose tests they are ranked by."""
    profile: str = "PROFILE"
    """What `mnb jobs` takes for a new run that the rules accept."""
    reference: str
    score_unit: str
    """The unit of the bids' scores."""
    currency: str
    budget: float | None = None
    """The limit on the prices of the nodes that are bought; None if their number was given, or nothing."""
    terms: Terms | None
    rows: tuple[BidRow, ...]
    criterion: str
    """What the bids are ranked by."""
    by_ownership: bool
    """Whether that is the cost over the years, and not the price."""
    why_unranked: str
    tests: tuple[str, ...]
    """The tests that ratios, prices, ranks, Pareto and stability cover."""
    of: int
    """How many tests have a weight."""
    other_work: tuple[OtherWork, ...]
    """Why weighted tests were dropped from the ranking for all bids."""
    not_in_all: tuple[str, ...]
    """The other weighted tests that the ranking does not cover, since a bid lacks them."""
    not_in_reference: tuple[str, ...]
    """Those that all bids did alike and the reference did not."""
    leave_one_out: LeaveOneOut | None
    """The ranks without one test or group; None if nothing is ranked."""
    stability: Stability | None
    """How stable the order is; None if nothing is ranked."""
    notes: tuple[str, ...]
    verdicts: dict[str, str] = {}
    """What verification said of each bid in ``rows``."""
    refused: dict[str, str] = {}
    """The bids that are not in ``rows``, and why: they cannot be read, break a rule, or share no work with most."""
    further: tuple[Tender, ...] = ()
    """The same bids ranked by each further suite of their profile."""

    @property
    def ranked(self) -> bool:
        """Whether any bid has a rank."""
        return any(row.rank is not None for row in self.rows)

    @property
    def each(self) -> tuple[Tender, ...]:
        """The ranking by each suite."""
        return (self, *self.further)

    @property
    def exit_code(self) -> int:
        """0: every bid has a ratio to the reference; 1: one lacks it, or is refused."""
        return int(bool(self.refused) or any(row.ratio is None for one in self.each for row in one.rows))
