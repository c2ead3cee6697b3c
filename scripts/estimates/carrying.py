"""How the rate of a computation transfers from one device to another: a rule learnt from known pairs. Pure.

According to Williams, Waterman and Patterson ("Roofline", CACM 52(4), 2009), arithmetic or memory limits a kernel. A
network mixes kernels of both kinds, so the natural measure of a step between devices is the geometric mean of the two
ratios of peak rates; but no device reaches its peaks, and newer ones fall further short. The model therefore takes the
logarithm of the ratio of rates as ``slope`` times that of the peaks, plus an error of the same size for all steps.
Slope and error size are learnt from pairs of devices that ran the same computation; the band is the prediction interval
of Student's t. Computations have equal weight, however many devices ran them, and the degrees of freedom count
workloads, since the errors of one workload's pairs are correlated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from milabench_ng.analysis.baselines.peaks import Arithmetic
from milabench_ng.analysis.statistics.intervals import LEVEL, t_quantile

DevicePair = tuple[str, str]


class KnownPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two devices that ran the same computation."""

    study: str
    """Who measured both, and with which software."""
    workload: str
    computation: str
    """The workload in a given precision."""
    arithmetic: Arithmetic
    devices: DevicePair
    peaks: float
    """The logarithm of the step from the first to the second, see `distance`."""
    rates: float
    """The logarithm of the second's rate over the first's."""


class TransferRule(msgspec.Struct, frozen=True, kw_only=True):
    """``rates = slope * peaks``, in logarithms, with an error of standard deviation ``spread``."""

    slope: float
    spread: float
    df: int
    moment: float
    """The sum over the workloads of the squared steps that the slope was learnt from."""

    def half_width(self, peaks: float) -> float:
        """Half the width of the 95 % band of a new computation, as a logarithm."""
        error = self.spread * math.sqrt(1 + peaks * peaks / self.moment)
        return t_quantile((1 + LEVEL) / 2, self.df) * error

    def holds(self, pair: KnownPair) -> bool:
        """Whether the band contains the pair's ratio."""
        return abs(pair.rates - self.slope * pair.peaks) <= self.half_width(pair.peaks)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the known pairs were inside the band of a rule that had not seen them."""

    left_out: str
    held: int
    known: int


def learn(pairs: Sequence[KnownPair]) -> TransferRule:
    """The rule that best fits ``pairs``. Raises ValueError for fewer than two workloads."""
    sizes = Counter((pair.study, pair.computation) for pair in pairs)
    weights = [1 / sizes[pair.study, pair.computation] for pair in pairs]
    workloads = len({pair.workload for pair in pairs})
    if workloads < 2:
        raise ValueError(f"{workloads} workloads do not show how much workloads differ")
    squares = math.fsum(weight * pair.peaks**2 for weight, pair in zip(weights, pairs, strict=True))
    slope = math.fsum(w * pair.peaks * pair.rates for w, pair in zip(weights, pairs, strict=True)) / squares
    errors = math.fsum(w * (pair.rates - slope * pair.peaks) ** 2 for w, pair in zip(weights, pairs, strict=True))
    total = math.fsum(weights)
    return TransferRule(
        slope=slope,
        spread=math.sqrt(errors / total * workloads / (workloads - 1)),
        df=workloads - 1,
        moment=squares / total * workloads,
    )


def validate(pairs: Sequence[KnownPair]) -> tuple[Held, ...]:
    """Check each pair against the rules learnt without its workload, without its two devices, and without its study."""
    ways: dict[str, Callable[[KnownPair], Hashable]] = {
        "workload": lambda pair: pair.workload,
        "pair of devices": lambda pair: frozenset(pair.devices),
        "study": lambda pair: pair.study,
    }
    return tuple(_held(name, key, pairs) for name, key in ways.items())


def _held(name: str, key: Callable[[KnownPair], Hashable], pairs: Sequence[KnownPair]) -> Held:
    held = 0
    for group in {key(pair) for pair in pairs}:
        rule = learn([pair for pair in pairs if key(pair) != group])
        held += sum(rule.holds(pair) for pair in pairs if key(pair) == group)
    return Held(left_out=name, held=held, known=len(pairs))


def least(found: Iterable[Held]) -> Held:
    """The check that held the fewest."""
    return min(found, key=lambda one: one.held / one.known)
