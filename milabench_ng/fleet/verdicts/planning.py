"""What repeats, retests and the number of tested nodes find, and what they cost, before anything is measured. Pure.

It rests on declared standard deviations, since nothing is known of the fleet yet. They are those of
``scripts/simulate-decisions --only fleet``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, HOST_DAY_STD
from milabench_ng.fleet.verdicts.columns import FEWEST_NODES, Column, Scope
from milabench_ng.fleet.verdicts.limits import USUAL, Limit, Strictness, usual_limits
from milabench_ng.fleet.verdicts.measured import Kind
from milabench_ng.fleet.verdicts.screening import FEWEST_CONTROLS
from milabench_ng.fleet.verdicts.spread import Spread

_MEDIAN = math.pi / 2
"""The variance of a median over that of a mean."""


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Declared standard deviations of tests of one kind."""

    launch: float
    repeat: float
    """Of all devices of a node in one repeat of a test."""
    day: float
    node: float
    """In all tests of the kind together."""
    own: float
    """In each test by itself."""


ON_GPU = Noise(launch=0.01, repeat=0.005, day=GPU_DAY_STD, node=0.0085, own=0.005)
ON_HOST = Noise(launch=0.03, repeat=0.005, day=HOST_DAY_STD, node=0.03, own=0.01)

REPEATS = (1, 2, 3, 5, 10)
RETESTS = (2, 3, 4)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be accepted."""

    nodes: int
    devices: int = 8
    kinds: Mapping[Kind, int]
    """How many tests there are of each kind."""
    slow: float = 0.05
    """How slow a node is that must be found, as a share."""
    bad: float = 0.01
    """How many nodes are so slow, as a share."""
    risk: float = 0.01
    """The probability that such a node, or a fleet with so many of them, is accepted."""
    hours_per_repeat: float
    strict: Strictness = USUAL

    @property
    def kind(self) -> Kind:
        """Of the tests in which a slow node is sought."""
        return "gpu" if "gpu" in self.kinds else next(iter(self.kinds))

    @property
    def slow_nodes(self) -> int:
        """So many nodes are so slow: a fleet without any cannot be accepted wrongly."""
        return max(1, round(self.bad * self.nodes))


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice of repeats and retests does, if all nodes are tested."""

    repeats: int
    retests: int
    missed: float
    """The probability that a node which is slow in all tests of the kind is not found."""
    missed_in_one: float
    """The same of a node that is slow in one of them."""
    false_alarms: float
    """How many healthy nodes are called slow, on average."""
    node_hours: float


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """What testing only some of the nodes does."""

    tested: int
    accepted: Mapping[int, float]
    """The probability that no slow node of the fleet is found, by repeats."""
    node_hours: Mapping[int, float]


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The operating characteristic."""

    wanted: Wanted
    efforts: tuple[Effort, ...]
    samples: tuple[Sampled, ...]
    cheapest: Effort | None
    """That keeps the risk for a node that is slow in all tests or in one; None if none does."""
    smallest: float | None
    """How slow a node has to be for one of these to keep the risk, as a share; None if none does."""
    more_nodes: int | None
    """Of so many nodes, a slow one is found with that risk; None if fewer do not matter."""


def plan(wanted: Wanted) -> FleetPlan:
    """What the choices are."""
    efforts = tuple(_effort(wanted, repeats, retests) for repeats in REPEATS for retests in RETESTS)
    enough = [one for one in efforts if max(one.missed, one.missed_in_one) <= wanted.risk]
    cheapest = min(enough, key=lambda one: one.node_hours) if enough else None
    retests = cheapest.retests if cheapest else wanted.strict.retests
    return FleetPlan(
        wanted=wanted,
        efforts=efforts,
        samples=tuple(_sampled(wanted, tested, retests) for tested in _sizes(wanted.nodes)),
        cheapest=cheapest,
        smallest=smallest_found(wanted),
        more_nodes=more_nodes(wanted),
    )


def smallest_found(wanted: Wanted) -> float | None:
    """How slow a node has to be, to a tenth of a percent, for the most repeats and retests to keep the risk."""
    limits = _limits(wanted, wanted.nodes, REPEATS[-1], RETESTS[-1])
    for step in range(1, 1000):
        if max(_missed(limits, wanted.kind, scope, step / 1000) for scope in ("all", "test")) <= wanted.risk:
            return step / 1000
    return None


def more_nodes(wanted: Wanted) -> int | None:
    """How many nodes it takes to find one that is slow at all; None if these are enough, and if many are not."""
    if smallest_found(wanted) is not None:
        return None
    larger = (msgspec.structs.replace(wanted, nodes=nodes) for nodes in range(wanted.nodes + 1, _MANY))
    return next((one.nodes for one in larger if smallest_found(one) is not None), None)


_MANY = 33
"""More nodes hardly find what so many do not."""


def _effort(wanted: Wanted, repeats: int, retests: int) -> Effort:
    limits = _limits(wanted, wanted.nodes, repeats, retests)
    whole, one = (_missed(limits, wanted.kind, scope, wanted.slow) for scope in ("all", "test"))
    return Effort(
        repeats=repeats,
        retests=retests,
        missed=whole,
        missed_in_one=one,
        false_alarms=math.fsum(limit.false_alarms() for _, limit in limits),
        node_hours=_node_hours(wanted, wanted.nodes, repeats, retests),
    )


def _sampled(wanted: Wanted, tested: int, retests: int) -> Sampled:
    accepted = {}
    for repeats in REPEATS:
        missed = _missed(_limits(wanted, tested, repeats, retests), wanted.kind, "all", wanted.slow)
        accepted[repeats] = accepted_with(wanted.nodes, wanted.slow_nodes, tested, missed)
    hours = {repeats: _node_hours(wanted, tested, repeats, retests) for repeats in REPEATS}
    return Sampled(tested=tested, accepted=accepted, node_hours=hours)


def accepted_with(nodes: int, slow: int, tested: int, missed: float) -> float:
    """The probability that none of the ``slow`` nodes is found, if ``tested`` are picked at random.

    Of a hypergeometric number of them, each is missed with probability ``missed``.
    """
    most = min(slow, tested)
    least = max(0, tested - (nodes - slow))
    ways = [math.comb(slow, there) * math.comb(nodes - slow, tested - there) for there in range(least, most + 1)]
    total = math.comb(nodes, tested)
    return math.fsum(way / total * missed**there for there, way in enumerate(ways, least))


def _sizes(nodes: int) -> tuple[int, ...]:
    """The fleet, and halves of it."""
    sizes = [nodes]
    while sizes[-1] // 2 >= max(FEWEST_NODES, nodes // 32):
        sizes.append(sizes[-1] // 2)
    return tuple(reversed(sizes))


def _node_hours(wanted: Wanted, tested: int, repeats: int, retests: int) -> float:
    """Of the screen, and of the retests of what is suspicious in a healthy fleet, with controls."""
    suspicious = math.ceil(wanted.strict.retested * tested)
    controls = min(wanted.strict.controls, max(FEWEST_CONTROLS, suspicious), tested - suspicious)
    return wanted.hours_per_repeat * repeats * (tested + (suspicious + controls) * retests)


def _missed(limits: Sequence[tuple[Column, Limit]], kind: Kind, scope: Scope, slow: float) -> float:
    """The probability that a node is not found which is slow in this; what is slow in the only test is so in all."""
    of_kind = {column.scope: limit for column, limit in limits if column.kind == kind}
    return 1 - float(of_kind.get(scope, of_kind["all"]).found(np.array([math.log1p(-slow)]))[0])


def _limits(wanted: Wanted, tested: int, repeats: int, retests: int) -> list[tuple[Column, Limit]]:
    whole = [Column(scope="all", kind=kind) for kind in wanted.kinds]
    tests = [
        Column(scope="test", kind=kind, test=str(number))
        for kind, count in wanted.kinds.items()
        for number in range(count if count > 1 else 0)
    ]
    columns = [*whole, *tests]
    strict = msgspec.structs.replace(wanted.strict, retests=retests)
    spreads = [_spread(column, wanted, tested, repeats, retests) for column in columns]
    return list(zip(columns, usual_limits(columns, spreads, strict), strict=True))


def _spread(column: Column, wanted: Wanted, tested: int, repeats: int, retests: int) -> Spread:
    noise, count = (ON_GPU if column.kind == "gpu" else ON_HOST), wanted.kinds[column.kind]
    launches = (noise.repeat**2 + noise.launch**2 / wanted.devices) / repeats
    median = _MEDIAN if count > 2 else 1.0
    if column.scope == "all":
        session = noise.day**2 + launches * median / count
        healthy = noise.node**2 + noise.own**2 * median / count
    else:
        others = 1 + median / (count - 1)
        session, healthy = launches * others, noise.own**2 * others
    suspicious = wanted.strict.retested * tested
    return Spread(
        nodes=tested,
        centre=0.0,
        total=math.sqrt(session + healthy),
        df=max(1.0, tested - 3),
        session=math.sqrt(session),
        session_df=10 + 2 * suspicious * (retests - 1),
    )
