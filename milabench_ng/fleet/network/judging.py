"""Which node has slow links, and which link is slow by itself: a screen of many pairs, then retests that decide. Pure.

A pair is as fast as the slower of its two nodes. So a node is as fast as the better part of its links, and is slow if
all of them are; a link is slow by itself if it is slower than both of its nodes. What the screen finds suspicious meets
again, together with links that are not, and these retests alone decide, by the same limits as for nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, get_args

import msgspec
import numpy as np

from milabench_ng.analysis.statistics.intervals import t_quantile
from milabench_ng.fleet.network.meetings import PairSeen
from milabench_ng.fleet.network.rounds import Pair, pair
from milabench_ng.fleet.nodes import NodeName
from milabench_ng.fleet.verdicts.columns import FEWEST_NODES
from milabench_ng.fleet.verdicts.limits import Limit, Retested, Strictness, retest_limit, screen_limit
from milabench_ng.fleet.verdicts.spread import LOST_DF, SESSION_DF, Spread, centre_and_std, pooled
from milabench_ng.fleet.verdicts.verdict import Ratio
from milabench_ng.model.grouping import gathered

STRICT = Strictness(margin=0.10, false_alarms=0.002)
"""Other traffic moves links more than tests of nodes. The slower of two nodes decides, which hides how fast the better
half of the nodes is, so that healthy nodes look more alike than they are: hence fewer false alarms than are allowed."""
_SHARE = 0.5
"""Of all error, for nodes and for links each."""
_BETTER = 0.75
"""The quantile of its links by which a node is known."""
_PARTNERS = 3
"""Nodes that are not suspicious with which a suspicious one meets again."""
_CONTROLS = 10
_ALONE = "none of its links works"
_ALL_ALONE = "no link works: nodes do not reach each other (a firewall? GLOO_SOCKET_IFNAME?)"
"""So for half of the nodes and more: whoever accuses all of them accuses the network's set-up."""
_TOO_FEW = f"fewer than {FEWEST_NODES} nodes met, so nothing says what is slow"

LinkState = Literal["broken", "slow", "inconclusive", "pass"]
LINK_STATES: tuple[LinkState, ...] = get_args(LinkState)
"""The worst first."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the screen says of nodes and links, in logarithms."""

    rates: Mapping[Pair, float]
    nodes: Mapping[NodeName, float]
    """How fast each node is."""
    of_nodes: Spread
    of_links: Spread

    def link(self, one: Pair, log_rate: float) -> float:
        """How much slower a link is than the slower of its nodes, relative to other links."""
        return log_rate - min(self.nodes[one[0]], self.nodes[one[1]]) - self.of_links.centre

    def node(self, node: NodeName) -> float:
        """How much slower a node is than others."""
        return self.nodes[node] - self.of_nodes.centre


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """What meets again."""

    nodes: tuple[NodeName, ...]
    """Those that are suspicious."""
    links: tuple[Pair, ...]
    """Those that are suspicious by themselves, or failed."""
    partners: Mapping[NodeName, tuple[Pair, ...]]
    """The links by which a suspicious node is judged."""
    controls: tuple[Pair, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs to be measured; none if nothing is suspicious."""
        if not (self.nodes or self.links):
            return ()
        through = (one for links in self.partners.values() for one in links)
        return tuple(dict.fromkeys((*self.links, *through, *self.controls)))


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a node's links together, or of one link."""

    state: LinkState
    ratio: Ratio | None = None
    """To the median node, or to what its nodes can do."""
    retests: int = 0
    why: str = ""


class NetworkVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a network."""

    nodes: Mapping[NodeName, Judged]
    links: Mapping[Pair, Judged]
    rates: Mapping[NodeName, float]
    """How fast the screen found each node, in logarithms."""
    expected_false_alarms: float
    """How many healthy nodes and links are called slow, on average."""


def known(seen: Iterable[PairSeen]) -> Known:
    """What follows from the screen."""
    rates = {one: math.fsum(each) / len(each) for one, each in _logs(seen).items()}
    links = gathered((node, rate) for one, rate in rates.items() for node in one)
    nodes = {node: float(np.quantile(each, _BETTER)) for node, each in links.items()}
    residuals = [rate - min(nodes[first], nodes[second]) for (first, second), rate in rates.items()]
    return Known(rates=rates, nodes=nodes, of_nodes=_spread(list(nodes.values())), of_links=_spread(residuals))


def meets_again(seen: Sequence[PairSeen]) -> Again:
    """What is suspicious after the screen, and who meets again for that."""
    found = known(seen)
    failed = tuple(dict.fromkeys(one.pair for one in seen if one.log_rate is None))
    nodes: tuple[NodeName, ...] = ()
    links: tuple[Pair, ...] = ()
    if len(found.nodes) >= FEWEST_NODES:
        slowest = screen_limit(found.of_nodes, _SHARE, STRICT)
        nodes = tuple(node for node in found.nodes if found.node(node) < slowest)
        slowest = screen_limit(found.of_links, _SHARE, STRICT)
        links = tuple(one for one, rate in found.rates.items() if found.link(one, rate) < slowest)
    healthy = [node for node in found.nodes if node not in nodes]
    partners = {node: _partners(node, healthy, {*links, *failed}) for node in nodes}
    suspects = {*nodes, *(node for one in (*links, *failed) for node in one)}
    calm = [one for one in found.rates if not suspects & set(one)] or [
        one for one in found.rates if not set(nodes) & set(one) and one not in links
    ]
    return Again(nodes=nodes, links=(*links, *failed), partners=partners, controls=tuple(_some(calm, _CONTROLS)))


def judge_network(
    screen: Sequence[PairSeen], retest: Sequence[PairSeen], left: Mapping[NodeName, Judged]
) -> NetworkVerdict:
    """The verdicts on all nodes and links. ``left``: what is said of nodes that did not stay to the end."""
    found, again = known(screen), meets_again(screen)
    retests = _logs(retest)
    failures = Counter(one.pair for one in (*screen, *retest) if one.log_rate is None)
    spreads, moved, controls = _spreads(found, again, retests)
    judge = _Judge(found, again, retests, moved, Retested(sessions=1.0, controls=controls, suspicions=_count(again)))
    links = {one: judge.link(one, spreads[1], failures[one]) for one in {**found.rates, **failures}}
    nodes = {node: judge.node(node, spreads[0]) for node in found.nodes}
    alone = _without_a_link(screen, links)
    few = 2 * len(alone) < len({node for one in links for node in one})
    for node in alone:
        nodes[node] = Judged(state="broken", why=_ALONE) if few else Judged(state="inconclusive", why=_ALL_ALONE)
        if few:
            links |= {one: msgspec.structs.replace(judged, why="") for one, judged in links.items() if node in one}
    nodes |= left
    return NetworkVerdict(nodes=nodes, links=links, rates=found.nodes, expected_false_alarms=_expected(found, spreads))


class _Judge(msgspec.Struct, frozen=True):
    """What the verdicts on nodes and links rest on."""

    found: Known
    again: Again
    retests: Mapping[Pair, list[float]]
    moved: float
    """What changed for all since the screen."""
    by: Retested

    def link(self, one: Pair, spread: Spread, failures: int) -> Judged:
        if failures > 1:
            return Judged(state="broken", retests=len(self.retests.get(one, ())), why=f"failed {failures} times")
        if len(self.found.nodes) < FEWEST_NODES:
            return Judged(state="inconclusive", why=_TOO_FEW)
        rate, logs = self.found.rates.get(one), self.retests.get(one, [])
        seen = None if rate is None else _ratio(self.found.link(one, rate), spread.total, spread)
        if one not in self.again.links:
            return Judged(state="pass", ratio=seen)
        if not logs or not self.found.nodes.keys() >= set(one):
            told = "it failed" if failures else "suspicious"
            return Judged(state="inconclusive", ratio=seen, why=f"{told}, and did not meet again with links that work")
        value = float(np.median(logs)) - self.moved  # messages have tails: a mean would be moved by one
        return self._decided(self.found.link(one, value), len(logs), spread)

    def node(self, node: NodeName, spread: Spread) -> Judged:
        if len(self.found.nodes) < FEWEST_NODES:
            return Judged(state="inconclusive", why=_TOO_FEW)
        if node not in self.again.nodes:
            return Judged(state="pass", ratio=_ratio(self.found.node(node), spread.total, spread))
        met = [log for one in self.again.partners[node] for log in self.retests.get(one, ())]
        if not met:
            return Judged(
                state="inconclusive",
                ratio=_ratio(self.found.node(node), spread.total, spread),
                why="suspicious, and did not meet others again",
            )
        times = max(len(self.retests.get(one, ())) for one in self.again.partners[node])
        value = float(np.median(met)) - self.moved - self.found.of_links.centre - self.found.of_nodes.centre
        return self._decided(value, times, spread)

    def _decided(self, value: float, times: int, spread: Spread) -> Judged:
        by = msgspec.structs.replace(self.by, sessions=float(times))
        limit, error = retest_limit(spread, _SHARE, STRICT, by)
        if value < limit:
            state: LinkState = "slow"
        else:
            state = "inconclusive" if value < STRICT.log_margin else "pass"
        why = "slower than the margin when it met again, but not certainly" if state == "inconclusive" else ""
        return Judged(state=state, ratio=_ratio(value, error, spread), retests=times, why=why)


def _spreads(
    found: Known, again: Again, retests: Mapping[Pair, list[float]]
) -> tuple[tuple[Spread, Spread], float, int]:
    """The spread of nodes and of links as the retests know them, what changed for all, and by how many links."""
    controls = [
        math.fsum(logs) / len(logs) - found.rates[one]
        for one in again.controls
        if (logs := retests.get(one)) and one in found.rates
    ]
    repeated = [np.asarray(each) for each in retests.values() if len(each) > 1]
    squares = math.fsum(float(np.sum((each - each.mean()) ** 2)) for each in repeated)
    df = float(sum(len(each) - 1 for each in repeated))
    made = []
    for spread in (found.of_nodes, found.of_links):
        session, session_df = pooled(squares, df, spread.session)
        total = max(spread.total, session)
        made.append(msgspec.structs.replace(spread, session=session, session_df=session_df, total=total))
    return (made[0], made[1]), float(np.median(controls)) if controls else 0.0, len(controls)


def _spread(values: Sequence[float]) -> Spread:
    centre, total = centre_and_std(np.asarray(values, float))
    df = max(1.0, len(values) - 1 - LOST_DF)
    session = total / math.sqrt(2)
    return Spread(nodes=max(1, len(values)), centre=centre, total=total, df=df, session=session, session_df=SESSION_DF)


def _expected(found: Known, spreads: tuple[Spread, Spread]) -> float:
    if len(found.nodes) < FEWEST_NODES:
        return 0.0
    expected = 0.0
    for screened, spread in zip((found.of_nodes, found.of_links), spreads, strict=True):
        by = Retested(sessions=float(STRICT.retests), controls=_CONTROLS, suspicions=1)
        limit, error = retest_limit(spread, _SHARE, STRICT, by)
        screen = screen_limit(screened, _SHARE, STRICT)
        expected += Limit(screen=screen, retest=limit, error=error, spread=spread).false_alarms()
    return expected


def _ratio(value: float, error: float, spread: Spread) -> Ratio:
    half = t_quantile(0.975, spread.session_df) * error
    return Ratio.around(value, half)


def _logs(seen: Iterable[PairSeen]) -> dict[Pair, list[float]]:
    return gathered((one.pair, one.log_rate) for one in seen if one.log_rate is not None)


def _without_a_link(screen: Sequence[PairSeen], links: Mapping[Pair, Judged]) -> tuple[NodeName, ...]:
    """The nodes of which every link is broken; in a fleet of two, none."""
    pairs = {each.pair for each in screen}
    met = gathered((node, links[one].state == "broken") for one in pairs for node in one)
    return tuple(node for node, broken in met.items() if all(broken) and len(broken) > 1)


def _partners(node: NodeName, healthy: Sequence[NodeName], but: Collection[Pair]) -> tuple[Pair, ...]:
    """The links by which a node meets others again."""
    free = [pair(node, other) for other in healthy if pair(node, other) not in but]
    return tuple(_some(free, _PARTNERS))


def _some(these: Sequence[Pair], most: int) -> list[Pair]:
    """At most so many, from all over the list."""
    count = min(most, len(these))
    return [these[place * len(these) // count] for place in range(count)]


def _count(again: Again) -> int:
    return max(1, len(again.nodes) + len(again.links))
