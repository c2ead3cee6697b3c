"""How often a healthy node of a fleet is called slow, and how often a slow one is found.

1,000 nodes of 8 devices run 3 repeats of 18 tests, 7 GPU-bound and 11 host-bound, as those of the profile
``standard``. What is suspicious does 3 retests on other days. Launches vary by 1 % on the GPU and by 3 % on the host,
repeats of a test by 0.5 % in common, days of a node by 0.5 and 4 %, nodes by 0.85 % in all GPU-bound tests together,
by 0.5 % in each of its own, and by 3 and 1 % in the others; devices of a node differ by 0.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from milabench_ng.fleet.verdicts.judging import judge
from milabench_ng.fleet.verdicts.limits import USUAL, Strictness
from milabench_ng.fleet.verdicts.measured import Array, Kind, Measured
from milabench_ng.fleet.verdicts.screening import suspicious
from milabench_ng.fleet.verdicts.verdict import FleetVerdict
from simulations.finding import Finding, average, share

TRIALS = 2000
FEW_TRIALS = 12

KINDS: tuple[Kind, ...] = ("gpu",) * 7 + ("host",) * 11
GPU = np.array([kind == "gpu" for kind in KINDS])
TESTS = tuple(f"t{number}" for number in range(len(KINDS)))
ONE = 3
"""The GPU-bound test that is slow alone."""
DEVICES, REPEATS = 8, 3
EACH = 5
"""Slow nodes of each sort in one fleet."""
OFTEN = Strictness(false_alarms=0.2)
"""So many false alarms that they can be counted."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Standard deviations, for GPU-bound tests and for others."""

    nodes: int = 1000
    launch: tuple[float, float] = (0.01, 0.03)
    repeat: float = 0.005
    day: tuple[float, float] = (0.005, 0.04)
    node: tuple[float, float] = (0.0085, 0.03)
    """In all tests together."""
    own: tuple[float, float] = (0.005, 0.01)
    """In each test by itself."""
    device: float = 0.005


Plant = Callable[[Array], None]
"""Slows the first nodes of true logarithms by node, test and device."""


def truths(rng: np.random.Generator, world: World) -> Array:
    """Logarithms by node, test and device."""
    count, tests = world.nodes, len(KINDS)
    nodes = _of(world.node) * np.where(GPU, rng.normal(size=(count, 1)), rng.normal(size=(count, 1)))
    nodes = nodes + _of(world.own) * rng.normal(size=(count, tests))
    devices = world.device * rng.normal(size=(count, 1, DEVICES)) * GPU[None, :, None]
    return np.asarray(nodes[:, :, None] + devices)


def session(rng: np.random.Generator, world: World, truth: Array) -> Array:
    """What nodes measure on one day."""
    count, tests, _ = truth.shape
    day = _of(world.day) * np.where(GPU, rng.normal(size=(count, 1)), rng.normal(size=(count, 1)))
    day = day + world.repeat / math.sqrt(REPEATS) * rng.normal(size=(count, tests))
    noise = _of(world.launch)[None, :, None] / math.sqrt(REPEATS) * rng.normal(size=truth.shape)
    return np.asarray(truth + day[:, :, None] + noise)


def judged(
    rng: np.random.Generator, world: World, strict: Strictness = USUAL, plant: Plant = lambda _: None
) -> FleetVerdict:
    """Screen a fleet, retest what is suspicious, and judge."""
    truth = truths(rng, world)
    plant(truth)
    screened = Measured(
        nodes=tuple(f"n{number}" for number in range(world.nodes)),
        tests=TESTS,
        kinds=KINDS,
        devices=tuple(map(str, range(DEVICES))),
        screen=session(rng, world, truth),
        retests=np.empty((0, *truth.shape)),
    )
    found = suspicious(screened, strict)
    again = [int(node[1:]) for node in (*(one.node for one in found.suspicious), *found.controls)]
    retests = np.full((strict.retests, *truth.shape), np.nan)
    for one in retests:
        one[again] = session(rng, world, truth[again])
    return judge(msgspec.structs.replace(screened, retests=retests), strict)


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """The lines of the table."""
    return list(_findings(rng, trials))


def _findings(rng: np.random.Generator, trials: int) -> Iterator[Finding]:
    """Of fewer fleets where each has many alarms or many slow nodes."""
    some = max(4, trials // 10)
    usual = World()
    clean = [judged(rng, usual) for _ in range(trials)]
    yield share("1,000 healthy nodes: any is called slow", [one.count("slow") > 0 for one in clean], high=0.01)
    yield average("the same: nodes retested for nothing", [_retested(one) / 1000 for one in clean], high=0.03)
    yield share("64 healthy nodes: any is called slow", _alarms(rng, World(nodes=64), trials), high=0.01)
    yield share("8 healthy nodes: any is called slow", _alarms(rng, World(nodes=8), trials), high=0.01)
    yield _foretold("healthy nodes called slow over those that the report expects", clean)
    often = [judged(rng, usual, OFTEN) for _ in range(2 * some)]
    yield _foretold("the same, where 20 % of fleets may have a false alarm", often, 0.5, 2.0)
    for what, world in _WORLDS.items():
        yield from _slow(rng, what, world, some)


def _slow(rng: np.random.Generator, what: str, world: World, trials: int) -> Iterator[Finding]:
    found = [[one.verdict == "slow" for one in judged(rng, world, plant=_plant).nodes] for _ in range(trials)]
    hits = np.array(found)[:, : len(_PLANTED) * EACH].reshape(trials, len(_PLANTED), EACH)
    for place, (name, limit) in enumerate(_PLANTED.items()):
        yield share(f"{what}: {name}", hits[:, place], low=limit if world == World() else -math.inf)


def _plant(truth: Array) -> None:
    """Slow the first nodes, five of each sort in `_PLANTED`; their truth is relative to the median, 0."""
    five, eight = math.log1p(-0.05), math.log1p(-0.08)
    groups = [slice(EACH * place, EACH * (place + 1)) for place in range(len(_PLANTED))]
    truth[groups[0]] += (
        five - np.where(GPU, truth[groups[0]].mean(axis=2)[:, GPU].mean(axis=1, keepdims=True), 0)[:, :, None]
    )
    truth[groups[1]] += five
    truth[groups[2], ONE] += five
    truth[groups[3], ONE] += eight
    truth[groups[4], :, 2] += five * GPU
    truth[groups[5]] += math.log1p(-0.03)


_PLANTED = {
    "5 % below the median in all tests, found": 0.95,
    "5 % slower in all tests than it would be, found": -math.inf,
    "5 % slower in one GPU-bound test, found": 0.80,
    "8 % slower in one GPU-bound test, found": 0.95,
    "one device of eight 5 % slower, found": 0.80,
    "3 % slower in all tests, which is the margin, called slow": -math.inf,
}
"""With the share that must be found."""
_WORLDS = {
    "usual": World(),
    "nodes differ by 1 % in all tests together": World(node=(0.01, 0.03), own=(0.0, 0.01)),
    "nodes differ by 1 % in each test by itself": World(node=(0.0, 0.0), own=(0.01, 0.03)),
    "days differ by 1 % on the GPU": World(day=(0.01, 0.05)),
}


def _of(pair: tuple[float, float]) -> Array:
    return np.where(GPU, *pair)


def _alarms(rng: np.random.Generator, world: World, trials: int) -> list[bool]:
    return [judged(rng, world).count("slow") > 0 for _ in range(trials)]


def _retested(fleet: FleetVerdict) -> int:
    return sum(one.retests > 0 for one in fleet.nodes) - USUAL.controls


def _foretold(what: str, fleets: list[FleetVerdict], low: float = -math.inf, high: float = math.inf) -> Finding:
    seen = sum(one.count("slow") for one in fleets)
    expected = math.fsum(one.expected_false_alarms for one in fleets)
    return Finding(
        what=f"{what} ({seen} over {expected:.1f})",
        measured=seen / expected,
        low=low,
        high=high,
        error=math.sqrt(max(1, seen)) / expected,
    )
