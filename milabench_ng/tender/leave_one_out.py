"""The ranks of bids without one of the tests, or without one group of them: whom a single test decides for. Pure.

Like `stability`, it uses the rates as they are. Equal costs share a rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from milabench_ng.analysis.scoring.weights import Groups
from milabench_ng.tender.ownership import Terms
from milabench_ng.tender.stability import Worth, per_throughput


class LeftOutRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks without something."""

    what: str
    """The test or the group that is left out; empty if nothing is."""
    ranks: dict[str, int]
    """By bid; 1 is the cheapest for its throughput."""

    @property
    def winners(self) -> frozenset[str]:
        """The bids of rank 1."""
        return frozenset(name for name, rank in self.ranks.items() if rank == 1)


class LeaveOneOut(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks over all tests, and those without each."""

    whole: LeftOutRanks
    without: tuple[LeftOutRanks, ...]
    """Without each test, then without each group."""

    @property
    def kept(self) -> int:
        """How many of the rankings have the winner of the whole."""
        return sum(one.winners == self.whole.winners for one in self.without)

    @property
    def moving(self) -> tuple[LeftOutRanks, ...]:
        """Those that differ from the ranks of the whole."""
        return tuple(one for one in self.without if one.ranks != self.whole.ranks)


def leave_one_out(worths: Sequence[Worth], terms: Terms | None, groups: Groups) -> LeaveOneOut:
    """Rank ``worths`` over all their tests, without each test, and without each of ``groups``.

    ``terms``: None if the order is by price alone. What would leave no test is not left out.
    """
    return LeaveOneOut(
        whole=_ranked("", worths, terms, ()),
        without=tuple(_ranked(what, worths, terms, tests) for what, tests in _omissions(worths, groups)),
    )


def _omissions(worths: Sequence[Worth], groups: Groups) -> Iterator[tuple[str, Collection[str]]]:
    tests = dict.fromkeys(test for worth in worths for test in worth.weights)
    chosen: dict[str, Collection[str]] = {test: (test,) for test in tests}
    for group in dict.fromkeys(groups[test] for test in tests if test in groups):
        members = [test for test in tests if groups.get(test) == group]
        if len(members) > 1:  # else it is that test
            chosen[group] = members
    yield from ((what, members) for what, members in chosen.items() if {*tests} - {*members})


def _ranked(what: str, worths: Sequence[Worth], terms: Terms | None, left_out: Collection[str]) -> LeftOutRanks:
    costs = {worth.name: per_throughput(_without(worth, left_out), terms) for worth in worths}
    ranks = {name: 1 + sum(other < cost for other in costs.values()) for name, cost in costs.items()}
    return LeftOutRanks(what=what, ranks=ranks)


def _without(worth: Worth, left_out: Collection[str]) -> Worth:
    return replace(
        worth,
        logs={test: log for test, log in worth.logs.items() if test not in left_out},
        weights={test: weight for test, weight in worth.weights.items() if test not in left_out},
    )
