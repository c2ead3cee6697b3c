"""How far healthy nodes and their sessions differ, from the fleet itself. Pure."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, HOST_DAY_STD
from milabench_ng.fleet.verdicts.columns import Column, Columns
from milabench_ng.fleet.verdicts.measured import Array, average

_CUT = 3.5
"""Robust standard deviations beyond which a node does not count as healthy for the spread."""
LOST_DF = 2.0
"""Degrees of freedom that the median and the cut cost."""
SESSION_DF = 10.0
"""How many degrees of freedom the declared spread of sessions counts as: with more retests, these decide."""
_SMALLEST = 1e-5
"""No two nodes agree better than that."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a healthy fleet, in logarithms."""

    nodes: int
    """How many answered."""
    centre: float
    total: float
    """Standard deviation between nodes in one session."""
    df: float
    session: float
    """Standard deviation between the sessions of one node."""
    session_df: float

    @property
    def healthy(self) -> float:
        """Standard deviation between the true values of healthy nodes."""
        return math.sqrt(max(0.0, self.total**2 - self.session**2))

    @property
    def at_most_healthy(self) -> float:
        """The same if sessions differ by a standard error less than they seem to: what more retests do not average."""
        surely = self.session**2 * (1 - math.sqrt(2 / self.session_df))
        return math.sqrt(self.total**2 - surely)

    def error(self, sessions: float, controls: int) -> float:
        """Standard error of a node's mean over so many retests, relative to the fleet, if ``controls`` go with it."""
        drift = self.session**2 * (1 + 1 / sessions) / controls if controls else 0.0
        return math.sqrt(self.session**2 / sessions + math.pi / 2 * self.total**2 / self.nodes + drift)


def spreads_of(found: Columns) -> tuple[Spread, ...]:
    return tuple(_spread(column, found, place) for place, column in enumerate(found.columns))


def _declared_session(column: Column, total: float) -> float:
    """How much sessions of one node differ, where retests do not tell. In tests and devices, days cancel."""
    if column.scope != "all":
        return total / math.sqrt(2)
    return min(total, GPU_DAY_STD if column.kind == "gpu" else HOST_DAY_STD)


def _spread(column: Column, found: Columns, place: int) -> Spread:
    values = found.screen[:, place]
    known = values[~np.isnan(values)]
    centre, total = centre_and_std(known)
    df = max(1.0, known.size - 1 - LOST_DF)
    session, session_df = _session(found.retests[:, :, place], _declared_session(column, total))
    return Spread(
        nodes=known.size, centre=centre, total=max(total, session), df=df, session=session, session_df=session_df
    )


def centre_and_std(known: Array) -> tuple[float, float]:
    """The median, and the standard deviation of what lies near it."""
    if known.size == 0:
        return math.nan, math.nan
    centre = float(np.median(known))
    rough = 1.4826 * float(np.median(np.abs(known - centre)))
    near = known[np.abs(known - centre) <= _CUT * rough]
    std = float(np.std(near, ddof=1)) if near.size > 1 else rough
    return centre, max(std, rough if known.size < _FEW else 0.0, _SMALLEST)


_FEW = 30
"""Of fewer nodes, the larger of the two deviations is taken: each is often too small by chance."""


def _session(retests: Array, declared: float) -> tuple[float, float]:
    """The standard deviation between sessions of a node, and its degrees of freedom.

    What changed for all nodes of a session is no part of it, since the controls show that: sessions are compared with
    sessions, and nodes with nodes, as in an analysis of variance of two ways.
    """
    known = retests[:, np.sum(~np.isnan(retests), axis=0) > 1]
    df = float(np.sum(~np.isnan(known)) - np.sum(known.shape) + 1) if known.size else 0.0
    return pooled(float(np.nansum(_unexplained(known) ** 2)), max(0.0, df), declared)


def _unexplained(known: Array) -> Array:
    """What is left of values by session and node without the means of both."""
    left = known
    for _ in range(_SWEEPS if np.isnan(known).any() else 1):
        left = left - average(left, 0)
        left = left - average(left, 1)[:, None]
    return left


_SWEEPS = 20
"""One is enough if every node did every session; where some are missing, each comes nearer."""


def pooled(squares: float, df: float, declared: float) -> tuple[float, float]:
    """The standard deviation of what was seen and what was declared together, and its degrees of freedom."""
    return math.sqrt((squares + SESSION_DF * declared**2) / (df + SESSION_DF)), df + SESSION_DF
