"""Which tests several bids can be ranked by: those that are the same work in all of them. Pure.

Two bids are before or behind each other only where both did the same, and so is every third between them. A test whose
ratio does not count between any two of them leaves the ranking for all: ranked over unlike tests, a bid could be first
by leaving its weak ones out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import msgspec

from milabench_ng.report.scoring.weights import Weights
from milabench_ng.report.summary.comparable import differences
from milabench_ng.report.summary.summary import Summary


class OtherWork(msgspec.Struct, frozen=True, kw_only=True):
    """A weighted test that two bids measured differently."""

    test: str
    bids: tuple[str, str]
    why: str
    """What differs, the first bid's before the second's."""


def other_work(bids: Mapping[str, Summary], weights: Weights) -> tuple[OtherWork, ...]:
    """Every weighted test whose ratio does not count between two of ``bids``, with all that differs."""
    return tuple(
        OtherWork(test=label, bids=(a, b), why=one.text)
        for a, b in combinations(bids, 2)
        for one in differences(bids[a], bids[b])
        if one.ratio != "counted"
        for label in one.tests
        if label in weights
    )


def shared(weights: Weights, apart: tuple[OtherWork, ...]) -> Weights:
    """``weights`` without those of the tests that are ``apart``."""
    left = {one.test for one in apart}
    return {label: weight for label, weight in weights.items() if label not in left}
