"""How often a healthy node or link of a network is called slow, and how often slow ones are found.

A pair is as fast as the slower of its nodes. Nodes differ by 2 %, links by 1 %, and every time that a pair meets by 3 %
with tails (Student's t with 4 degrees of freedom); all links move by 2 % between screen and retests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from milabench_ng.fleet.network.judging import STRICT, NetworkVerdict, judge_network, meets_again
from milabench_ng.fleet.network.meetings import PairSeen
from milabench_ng.fleet.network.rounds import Pair, pair, pair_rounds, rounds_of
from milabench_ng.records.links import Round
from simulations.finding import Finding, share

TRIALS = 1000
FEW_TRIALS = 40
_TAILS = 4


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Standard deviations."""

    nodes: int = 64
    node: float = 0.02
    link: float = 0.01
    meeting: float = 0.03
    day: float = 0.02


NOISY = World(node=0.06, link=0.03, meeting=0.09, day=0.06)


class Made(msgspec.Struct, frozen=True):
    """A verdict, and how many pairs met again for it."""

    verdict: NetworkVerdict
    again: int

    @property
    def slow(self) -> tuple[object, ...]:
        """Nodes and links that are called slow."""
        both = (*self.verdict.nodes.items(), *self.verdict.links.items())
        return tuple(name for name, one in both if one.state == "slow")


def judged(
    rng: np.random.Generator,
    world: World,
    slow_nodes: Mapping[str, float] | None = None,
    slow_links: Mapping[Pair, float] | None = None,
) -> Made:
    """Screen a network, have what is suspicious meet again, and judge."""
    names = tuple(f"n{number:04}" for number in range(world.nodes))
    nodes = dict(zip(names, world.node * rng.normal(size=world.nodes), strict=True))
    nodes |= {node: math.log1p(-by) for node, by in (slow_nodes or {}).items()}
    links: dict[Pair, float] = {}

    def seen(rounds: tuple[Round, ...], day: float) -> Iterator[PairSeen]:
        for one in rounds:
            for first, second in one.groups:
                key = pair(first, second)
                own = links.setdefault(key, world.link * rng.normal())
                planted = math.log1p(-(slow_links or {}).get(key, 0.0))
                noise = world.meeting * rng.standard_t(_TAILS) / math.sqrt(_TAILS / (_TAILS - 2))
                yield PairSeen(pair=key, log_rate=min(nodes[first], nodes[second]) + own + planted + day + noise)

    screen = tuple(seen(pair_rounds(names), 0.0))
    again = meets_again(screen)
    retest = tuple(seen(rounds_of(again.pairs, STRICT.retests), world.day * rng.normal()))
    return Made(judge_network(screen, retest, {}), len(again.pairs))


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """The lines of the table."""
    return list(_findings(rng, trials))


def _findings(rng: np.random.Generator, trials: int) -> Iterator[Finding]:
    for count in (8, 64):
        clean = [judged(rng, World(nodes=count)) for _ in range(trials)]
        what = f"{count} healthy nodes"
        yield share(f"{what}: any node or link is called slow", [bool(one.slow) for one in clean], high=0.01)
    noisy = [judged(rng, NOISY) for _ in range(trials)]
    yield share(
        "64 healthy nodes, three times as noisy: any is called slow", [bool(one.slow) for one in noisy], high=0.01
    )
    few = max(4, trials // 10)
    large = [judged(rng, World(nodes=512)) for _ in range(few)]
    yield share("512 healthy nodes: any node or link is called slow", [bool(one.slow) for one in large], high=0.01)
    for count, by, low in ((8, 0.5, 0.95), (64, 0.2, -math.inf), (64, 0.3, 0.95)):
        yield from _slow(rng, count, by, low, few)


def _slow(rng: np.random.Generator, count: int, by: float, low: float, trials: int) -> Iterator[Finding]:
    what = f"{count} nodes, one node and one link {100 * by:.0f} % slower"
    one = (
        pair("n0002", "n0005") if count == 8 else pair_rounds([f"n{number:04}" for number in range(count)])[0].groups[3]
    )
    link = pair(*one)
    made = [judged(rng, World(nodes=count), {"n0001": by}, {link: by}).slow for _ in range(trials)]
    yield share(f"{what}: the node, found", ["n0001" in each for each in made], low=low)
    yield share(f"{what}: the link, found", [link in each for each in made], low=low)
    yield share(
        f"{what}: anything else is called slow", [bool(set(each) - {"n0001", link}) for each in made], high=0.02
    )
