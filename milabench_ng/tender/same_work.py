"""What leaves a ranking since it is not the same work as in other bids: tests, or whole bids. Pure.

Two bids can be ordered only if both did the same work, as must any third between them. A test whose ratio does not
count between some two bids is dropped for all: if tests differed, a bid could win by leaving out its weak ones. One bid
that shares no work with the others, of other suites or of GPUs cut otherwise, would leave no test, whatever its price:
it is set aside. Most bids decide what is usual; of two kinds of equally many bids, that of the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import msgspec

from milabench_ng.analysis.scoring.weights import Weights
from milabench_ng.analysis.summary.comparable import differences, part_of_gpu
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.plain import short


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


def set_aside(bids: Mapping[str, Summary], reference: Summary) -> dict[str, str]:
    """Those of ``bids`` that have no work in common with most, and why."""
    others = _unusual({name: _suites(one) for name, one in bids.items()}, _suites(reference))
    found = {name: f"excluded: it ran {suites}, but {who} ran {usual}" for name, (suites, who, usual) in others.items()}
    alike = {name: part_of_gpu(one) for name, one in bids.items() if name not in found}
    for name, (cut, who, usual) in _unusual(alike, part_of_gpu(reference)).items():
        found[name] = f"excluded: its GPUs are {cut}, but those of {who} are {usual}, so no test is comparable"
    return found


def _suites(summary: Summary) -> str:
    return " and ".join(short(suite) for suite in sorted(summary.known_suites))


def _unusual(kinds: Mapping[str, str], reference: str) -> dict[str, tuple[str, str, str]]:
    """The kind of each bid that is not of the usual one, who decides that, and that; nothing if nobody does."""
    counts = Counter(kinds.values())
    first, *others = sorted(((counts[kind], kind == reference), kind) for kind in counts)[::-1]
    if any(size == first[0] for size, _ in others):
        return {}
    tied = any(size[0] == first[0][0] for size, _ in others)
    who = (
        "the reference, which decides between equally many bids,"
        if tied
        else "most bids"
        if 2 * first[0][0] > len(kinds)
        else "more bids"
    )
    return {name: (kind, who, first[1]) for name, kind in kinds.items() if kind != first[1]}
