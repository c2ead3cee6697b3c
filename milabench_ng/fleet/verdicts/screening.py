"""Which nodes are to be retested after the screen. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from milabench_ng.fleet.nodes import SCREEN
from milabench_ng.fleet.verdicts.columns import FEWEST_NODES, Column, Columns, columns_of
from milabench_ng.fleet.verdicts.limits import USUAL, Strictness, screen_limit, shares
from milabench_ng.fleet.verdicts.measured import Measured
from milabench_ng.fleet.verdicts.spread import spreads_of

FEWEST_CONTROLS = 3


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node is to be retested."""

    node: str
    columns: tuple[Column, ...]
    """What it may be slow in; the most unusual first."""
    failed: tuple[str, ...] = ()
    """The tests with failed launches."""


class Screening(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the screen."""

    suspicious: tuple[Suspicion, ...]
    controls: tuple[str, ...]
    """Nodes in the middle of the fleet, which show what changed for all nodes between screen and retest."""


def suspicious(fleet: Measured, strict: Strictness = USUAL, *, tried: Collection[str] = ()) -> Screening:
    """The nodes to retest in sessions of their own. ``tried``: nodes that did retests before, and are no controls."""
    found = columns_of(fleet)
    slow = slow_in_screen(found, strict)
    made = []
    for place, node in enumerate(fleet.nodes):
        failed = fleet.failed.get(node, {}).get(SCREEN, ())
        if slow[place] or failed:
            columns = tuple(found.columns[column] for column in slow[place])
            made.append(Suspicion(node=node, columns=columns, failed=failed))
    suspects = [one.node for one in made]
    return Screening(suspicious=tuple(made), controls=_controls(fleet, found, suspects, strict, tried))


def slow_in_screen(found: Columns, strict: Strictness) -> list[list[int]]:
    """The columns in which each node is suspicious, the most unusual first.

    By the screen alone: what the retests show of the spread clears nobody of a suspicion.
    """
    spreads = spreads_of(msgspec.structs.replace(found, retests=found.retests[:0]))
    slow: list[list[int]] = [[] for _ in found.screen]
    beyond = np.zeros_like(found.screen)
    for place, (spread, share) in enumerate(zip(spreads, shares(found.columns), strict=True)):
        if spread.nodes >= FEWEST_NODES:
            limit = screen_limit(spread, share, strict)
            beyond[:, place] = (found.screen[:, place] - spread.centre) / -limit
    for node, column in zip(*np.nonzero(beyond < -1), strict=True):
        slow[node].append(int(column))
    return [sorted(columns, key=lambda column: float(beyond[node, column])) for node, columns in enumerate(slow)]


def _controls(
    fleet: Measured, found: Columns, suspects: Sequence[str], strict: Strictness, tried: Collection[str]
) -> tuple[str, ...]:
    """As many as nodes are suspicious, those nearest to the median."""
    if not suspects or not found.columns:
        return ()
    wanted = min(strict.controls, max(FEWEST_CONTROLS, len(suspects)))
    away = np.abs(found.screen[:, 0] - np.nanmedian(found.screen[:, 0]))
    order = np.argsort(away)  # those without results last
    free = (fleet.nodes[place] for place in order if not np.isnan(away[place]))
    return tuple(sorted([node for node in free if node not in suspects and node not in tried][:wanted]))
