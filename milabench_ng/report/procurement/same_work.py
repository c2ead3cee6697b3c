"""Which tests bids can be ranked by: those that are the same work in all of them. Pure.

Two bids can be ordered only if both did the same work, as must any third between them. A test whose ratio does not
count between some two bids is dropped for all: if tests differed, a bid could win by leaving out its weak ones.
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
    """What differs; the first bid's value comes before the second's."""


def other_work(bids: Mapping[str, Summary], weights: Weights) -> tuple[OtherWork, ...]:
    """Every weighted test whose ratio does not count between some two of ``bids``, with all differences."""
    return tuple(
        OtherWork(test=label, bids=(a, b), why=one.text)
        for a, b in combinations(bids, 2)
        for one in differences(bids[a], bids[b])
        if one.ratio != "counted"
        for label in one.tests
        if label in weights
    )
