"""All simulated decisions by name, and their seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from simulations import (
    acceptance,
    coverage,
    days,
    drift,
    fleet,
    lost_launches,
    narrow,
    neighbours,
    network,
    penalised,
    planning,
    ranking,
    scaling,
    sessions,
    slow_devices,
    slow_repeats,
    steadiness,
    verdicts,
    windows,
)
from simulations.finding import Finding

SEED = 20260106


class Decision(Protocol):
    """What a module of this package has."""

    @property
    def TRIALS(self) -> int:  # noqa: N802
        """For the tables."""

    @property
    def FEW_TRIALS(self) -> int:  # noqa: N802
        """For the tests."""

    def findings(self, rng: np.random.Generator, trials: int) -> Sequence[Finding]:
        """What was measured over the trials."""


DECISIONS: Mapping[str, Decision] = {
    "acceptance": acceptance,
    "coverage": coverage,
    "days": days,
    "drift": drift,
    "fleet": fleet,
    "lost-launches": lost_launches,
    "narrow": narrow,
    "neighbours": neighbours,
    "network": network,
    "penalised": penalised,
    "planning": planning,
    "ranking": ranking,
    "scaling": scaling,
    "sessions": sessions,
    "slow-devices": slow_devices,
    "slow-repeats": slow_repeats,
    "steadiness": steadiness,
    "verdicts": verdicts,
    "windows": windows,
}


def simulate(name: str, trials: int) -> Sequence[Finding]:
    """The findings of a decision, the same every time."""
    return DECISIONS[name].findings(np.random.default_rng([SEED, *name.encode()]), trials)
