"""Who meets whom, round by round, so that no node is in two groups at a time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from milabench_ng.fleet.nodes import NodeName
from milabench_ng.records.links import NodesLaunch, Round

Pair = tuple[NodeName, NodeName]
ALL_PAIRS = 16
"""Up to so many nodes, everybody meets everybody."""
_SMALLEST_RING = 4


def pair(first: NodeName, second: NodeName) -> Pair:
    """The same, whoever is named first."""
    return (first, second) if first < second else (second, first)


def pair_rounds(nodes: Sequence[NodeName]) -> tuple[Round, ...]:
    """All pairs of a few nodes; of many, so many rounds that their number grows with the logarithm of the nodes."""
    every = tuple(_round_robin(nodes))
    wanted = len(every) if len(nodes) <= ALL_PAIRS else min(len(every), 2 * math.ceil(math.log2(len(nodes))))
    return tuple(every[place * len(every) // wanted] for place in range(wanted))


def ring_rounds(nodes: Sequence[NodeName]) -> tuple[Round, ...]:
    """Rings of 4, 8, 16 ... neighbors, all of one size at the same time, and one of all nodes."""
    parts = _neighbors(nodes, _SMALLEST_RING)
    whole = [(tuple(nodes),)] if len(nodes) > 2 else []
    return tuple(Round(shape="ring", groups=groups) for groups in (*parts, *whole))


def launch_rounds(nodes: Sequence[NodeName], launches: Iterable[NodesLaunch]) -> tuple[Round, ...]:
    """Each launch on every node, on groups of 2, 4, 8 ... neighbors, all of one size at the same time, and on all."""
    parts = _neighbors(nodes, 1)
    return tuple(
        Round(shape="launch", groups=groups, launch=launch)
        for launch in launches
        for groups in (*parts, (tuple(nodes),))
    )


def rounds_of(pairs: Iterable[Pair], repeats: int) -> tuple[Round, ...]:
    """Rounds in which each of these pairs meets so many times."""
    waiting: list[list[Pair]] = []
    for one in dict.fromkeys(pairs):
        free = next((group for group in waiting if not any(set(one) & set(other) for other in group)), None)
        if free is None:
            waiting.append([one])
        else:
            free.append(one)
    return tuple(Round(shape="pairs", groups=tuple(group)) for group in waiting) * repeats


def _neighbors(nodes: Sequence[NodeName], fewest: int) -> list[tuple[tuple[NodeName, ...], ...]]:
    """Groups of ``fewest`` neighbors, of twice as many, and so on; not the one of all nodes."""
    sizes = [fewest << power for power in range(32) if fewest << power < len(nodes)]
    return [
        tuple(tuple(nodes[begin : begin + size]) for begin in range(0, len(nodes) - size + 1, size)) for size in sizes
    ]


def _round_robin(nodes: Sequence[NodeName]) -> Iterator[Round]:
    """The circle method: the first stays, and all others move on by one place."""
    seats: list[NodeName | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        faced = zip(seats[:half], reversed(seats[half:]), strict=True)
        met = tuple((first, second) for first, second in faced if first is not None and second is not None)
        if met:
            yield Round(shape="pairs", groups=met)
        seats = [seats[0], seats[-1], *seats[1:-1]]
