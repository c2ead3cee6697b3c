"""Where a node becomes suspicious, and where it is called slow. Pure.

A node is called slow if both are certain: it is slower than the fleet's median by more than the margin, and no healthy
node of this fleet would be as slow. The second keeps a fleet whose healthy nodes differ a lot from being full of false
alarms, and is what the error rate of the whole fleet is divided for: over all nodes, not only over those that are
retested, since the screen picked these. The share of each sort of question is fixed (a weighted Bonferroni correction).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from milabench_ng.analysis.statistics.intervals import t_quantile
from milabench_ng.fleet.verdicts.columns import Column
from milabench_ng.fleet.verdicts.measured import Array
from milabench_ng.fleet.verdicts.spread import Spread

_SHARES: Mapping[tuple[str, bool], float] = {
    ("all", True): 0.6,
    ("all", False): 0.1,
    ("test", True): 0.15,
    ("test", False): 0.05,
    ("device", True): 0.1,
    ("device", False): 0.1,
}
"""How much of all error a sort of question may use, by scope and whether it is about GPU-bound tests."""
_NEAR = 1.28
"""Standard deviations of a session by which the screen is more careful than the margin: nine in ten pass it."""


class Strictness(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are judged."""

    margin: float = 0.03
    """By which share a node may be slower than the fleet's median."""
    false_alarms: float = 0.01
    """The probability of any false alarm in a healthy fleet."""
    retested: float = 0.02
    """The share of a healthy fleet that is retested for nothing."""
    retests: int = 3
    """How many retest sessions a suspicious node does."""
    controls: int = 10
    """With how many nodes that are not suspicious, at most: they show what changed for all since the screen."""

    @property
    def log_margin(self) -> float:
        """The margin as a logarithm, below 0."""
        return math.log1p(-self.margin)


USUAL = Strictness()


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one column, as differences of logarithms from the fleet's median."""

    screen: float
    """A node below it is retested."""
    retest: float
    """A node whose mean over the usual number of retests is below it is slow."""
    error: float
    """Standard error of that mean."""
    spread: Spread

    def found(self, truths: Array) -> Array:
        """The probability that a node of each of these true values is retested, and called slow."""
        from scipy.special import ndtr  # heavy

        seen = ndtr((self.screen - truths) / self.spread.session)
        return np.asarray(seen * ndtr((self.retest - truths) / self.error))

    def false_alarms(self) -> float:
        """How many healthy nodes of the fleet are called slow on average."""
        places = np.linspace(-8.0, 8.0, 641)
        density = np.exp(-(places**2) / 2)
        seen = self.found(places * self.spread.healthy)
        return self.spread.nodes * float(np.sum(density * seen) / np.sum(density))


def shares(columns: Sequence[Column]) -> tuple[float, ...]:
    """How much of all error each column may use; together 1."""
    groups = [(one.scope, one.kind == "gpu") for one in columns]
    counts = Counter(groups)
    total = math.fsum(_SHARES[group] for group in counts)
    return tuple(_SHARES[group] / total / counts[group] for group in groups)


def screen_limit(spread: Spread, share: float, strict: Strictness) -> float:
    """Below which a node is suspicious: near the margin, and unusual."""
    unusual = t_quantile(1 - strict.retested * share, spread.df) * spread.total
    return -max(-strict.log_margin - _NEAR * spread.session, unusual)


class Retested(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict on a suspicious node rests on."""

    sessions: float
    """How many retests it did."""
    controls: int
    """How many nodes that were not suspicious did them, too."""
    suspicions: int
    """How many suspicions of the fleet are decided."""


def retest_limit(spread: Spread, share: float, strict: Strictness, by: Retested) -> tuple[float, float]:
    """Below which mean of its retests a node is slow, and the standard error of that mean."""
    error = spread.error(by.sessions, by.controls)
    certain = t_quantile(1 - strict.false_alarms / max(1, by.suspicions), spread.session_df)
    unusual = t_quantile(1 - strict.false_alarms * share / spread.nodes, spread.df)
    healthy = math.hypot(spread.at_most_healthy, error)
    return min(strict.log_margin - certain * error, -unusual * healthy), error


def usual_limits(columns: Sequence[Column], spreads: Sequence[Spread], strict: Strictness) -> tuple[Limit, ...]:
    """The limits of a fleet whose suspicious nodes do the usual number of retests."""
    expected = max(1, round(strict.retested * max((one.nodes for one in spreads), default=1)))
    made = []
    for spread, share in zip(spreads, shares(columns), strict=True):
        controls = min(strict.controls, max(0, spread.nodes - expected))
        by = Retested(sessions=strict.retests, controls=controls, suspicions=expected)
        limit, error = retest_limit(spread, share, strict, by)
        made.append(Limit(screen=screen_limit(spread, share, strict), retest=limit, error=error, spread=spread))
    return tuple(made)
