"""The verdict on every node: the screen says who is suspicious, and the retests alone decide. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from milabench_ng.analysis.statistics.intervals import t_quantile
from milabench_ng.fleet.nodes import SCREEN
from milabench_ng.fleet.verdicts.columns import FEWEST_NODES, Column, Columns, columns_of
from milabench_ng.fleet.verdicts.limits import USUAL, Limit, Retested, Strictness, retest_limit, shares, usual_limits
from milabench_ng.fleet.verdicts.measured import Array, Measured, average
from milabench_ng.fleet.verdicts.screening import slow_in_screen
from milabench_ng.fleet.verdicts.spread import Spread, spreads_of
from milabench_ng.fleet.verdicts.verdict import FleetVerdict, NodeVerdict, Noticed, Ratio

_ASSURANCE = 0.95
_HALF = 0.5
"""A fleet that would not show a node that is slower by this share clears nobody."""


class _Fleet(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What all verdicts of a fleet rest on."""

    measured: Measured
    found: Columns
    spreads: tuple[Spread, ...]
    shares: tuple[float, ...]
    strict: Strictness
    told_apart: Array
    """Whether a node ran tests of a kind in all of which one half as fast would be found."""
    sessions: Array
    """How many retests answered, by node and column."""
    means: Array
    """Their means, less what changed for all since the screen."""
    controls: int
    suspicions: int


NOT_RETESTED = "suspicious, and not retested"


class _Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A suspicion after the retests."""

    column: int
    mean: float
    limit: float
    error: float

    @property
    def slow(self) -> bool:
        return self.mean < self.limit


def judge(measured: Measured, strict: Strictness = USUAL) -> FleetVerdict:
    """The verdicts on all nodes."""
    found = columns_of(measured)
    spreads = spreads_of(found)
    slow = slow_in_screen(found, strict)
    limits = usual_limits(found.columns, spreads, strict)
    judged = {place: limit for place, limit in enumerate(limits) if limit.spread.nodes >= FEWEST_NODES}
    shown = {place: _slowest_missed(limit) for place, limit in judged.items()}
    telling = [column.scope == "all" and shown.get(place, 1.0) <= _HALF for place, column in enumerate(found.columns)]
    fleet = _fleet(measured, found, spreads, slow, strict, telling)
    return FleetVerdict(
        nodes=tuple(_node(fleet, place, slow[place]) for place in range(len(measured.nodes))),
        expected_false_alarms=math.fsum(limit.false_alarms() for limit in judged.values()),
        noticed=_noticed(found.columns, judged, shown),
        strictness=strict,
    )


def _fleet(
    measured: Measured,
    found: Columns,
    spreads: tuple[Spread, ...],
    slow: Sequence[Sequence[int]],
    strict: Strictness,
    telling: Sequence[bool],
) -> _Fleet:
    sessions = np.sum(~np.isnan(found.retests), axis=0)
    means = average(found.retests, 0) if len(found.retests) else np.full_like(found.screen, np.nan)
    odd = [bool(noticed) or _failed(measured, node) for noticed, node in zip(slow, measured.nodes, strict=True)]
    suspects = np.array(odd, dtype=bool)  # of no node, too: none may have ended yet
    controls = ~suspects & np.any(sessions > 0, axis=1)
    moved = average(means[controls] - found.screen[controls], 0) if controls.any() else np.zeros(len(found.columns))
    return _Fleet(
        measured=measured,
        found=found,
        spreads=spreads,
        shares=shares(found.columns),
        strict=strict,
        told_apart=~np.isnan(found.screen) @ np.array(telling, dtype=bool),
        sessions=sessions,
        means=means - np.nan_to_num(moved),
        controls=int(controls.sum()),
        suspicions=sum(map(len, slow)),
    )


def _failed(measured: Measured, node: str) -> bool:
    return bool(measured.failed.get(node, {}).get(SCREEN))


def _node(fleet: _Fleet, place: int, slow: Sequence[int]) -> NodeVerdict:
    node = fleet.measured.nodes[place]
    if why := fleet.measured.lost.get(node, ""):
        return NodeVerdict(node=node, verdict="lost", why=why)
    if wrong := fleet.measured.wrong.get(node):
        why = "it computed something wrong, which no sound retest excuses"
        return NodeVerdict(node=node, verdict="faulty", why=why, failed=wrong)
    if why := fleet.measured.apart.get(node, ""):
        return NodeVerdict(node=node, verdict="inconclusive", why=why)
    failed = fleet.measured.failed.get(node, {})
    if not failed.get(SCREEN) and np.isnan(fleet.measured.screen[place]).all():
        return NodeVerdict(node=node, verdict="lost", why="it left no results of the screen")
    retests = int(fleet.sessions[place].max(initial=0))
    again = tuple(sorted({test for session, tests in failed.items() if session != SCREEN for test in tests}))
    if again:
        why = f"launches failed in a retest{', as in the screen' if failed.get(SCREEN) else ''}"
        return NodeVerdict(node=node, verdict="faulty", why=why, failed=again, retests=retests)
    if failed.get(SCREEN) and not retests:
        why = "launches failed in the screen, and there is no retest"
        return NodeVerdict(node=node, verdict="inconclusive", why=why, failed=tuple(failed[SCREEN]))
    if max((one.nodes for one in fleet.spreads), default=0) < FEWEST_NODES:
        why = f"fewer than {FEWEST_NODES} nodes have results of its tests, so nothing says which are slow"
        return NodeVerdict(node=node, verdict="inconclusive", why=why, ratio=_of_screen(fleet, place), retests=retests)
    return _by_rates(fleet, place, slow, retests)


def _by_rates(fleet: _Fleet, place: int, slow: Sequence[int], retests: int) -> NodeVerdict:
    node = fleet.measured.nodes[place]
    if not slow and not fleet.told_apart[place]:
        why = "nodes with its tests are too few, or differ too much, to show one that is half as fast"
        return NodeVerdict(node=node, verdict="inconclusive", why=why, ratio=_of_screen(fleet, place), retests=retests)
    if not slow:
        return NodeVerdict(node=node, verdict="pass", ratio=_of_screen(fleet, place), retests=retests)
    decided = [_decide(fleet, place, column) for column in slow if fleet.sessions[place, column]]
    proven = [one for one in decided if one.slow]
    if proven:
        worst = _explains(fleet, proven)
        return NodeVerdict(
            node=node,
            verdict="slow",
            ratio=_ratio(fleet, worst),
            cause=fleet.found.columns[worst.column],
            also=tuple(fleet.found.columns[one.column] for one in proven if one is not worst),
            retests=retests,
        )
    undecided = [one for one in decided if one.mean < fleet.strict.log_margin]
    if len(decided) < len(slow) or undecided:
        why = "slower than the margin in the retests, but not certainly" if undecided else NOT_RETESTED
        at = undecided[0] if undecided else None
        return NodeVerdict(
            node=node,
            verdict="inconclusive",
            why=why,
            ratio=_ratio(fleet, at) if at else _of_screen(fleet, place, slow[0]),
            cause=fleet.found.columns[at.column if at else slow[0]],
            retests=retests,
        )
    return NodeVerdict(node=node, verdict="pass", ratio=_ratio(fleet, decided[0]), retests=retests)


def _decide(fleet: _Fleet, place: int, column: int) -> _Decided:
    spread = fleet.spreads[column]
    by = Retested(sessions=float(fleet.sessions[place, column]), controls=fleet.controls, suspicions=fleet.suspicions)
    limit, error = retest_limit(spread, fleet.shares[column], fleet.strict, by)
    return _Decided(column=column, mean=float(fleet.means[place, column] - spread.centre), limit=limit, error=error)


def _explains(fleet: _Fleet, proven: Sequence[_Decided]) -> _Decided:
    """The cause to name: all tests of a kind, unless one device or test is much slower and so explains it."""
    order = {"all": 0, "device": 1, "test": 2}
    first = min(proven, key=lambda one: (order[fleet.found.columns[one.column].scope], one.mean))
    deepest = min(proven, key=lambda one: one.mean)
    return deepest if deepest.mean < _MUCH * first.mean else first


_MUCH = 1.5
"""How many times as slow one device or test is, to explain why all are; a slow device of two slows its node by half."""


def _ratio(fleet: _Fleet, one: _Decided) -> Ratio:
    half = t_quantile(0.975, fleet.spreads[one.column].session_df) * one.error
    return Ratio.around(one.mean, half)


def _of_screen(fleet: _Fleet, place: int, column: int | None = None) -> Ratio | None:
    """Of the screen alone, whose one session differs from others as declared or seen; None if nothing is answered.

    Without a ``column``, it is that of all tests of a kind, which comes first and which only enough nodes have.
    """
    if column is None:
        column = 0
        if not fleet.spreads or fleet.found.columns[column].scope != "all":
            return None
    if np.isnan(fleet.found.screen[place, column]):
        return None
    spread = fleet.spreads[column]
    mean = float(fleet.found.screen[place, column] - spread.centre)
    return _ratio(fleet, _Decided(column=column, mean=mean, limit=0.0, error=spread.error(1, 0)))


def _noticed(columns: Sequence[Column], judged: Mapping[int, Limit], shown: Mapping[int, float]) -> tuple[Noticed, ...]:
    """Of each sort of question, that in which the least is found."""
    made: dict[tuple[str, str], Noticed] = {}
    for place, limit in judged.items():
        column = columns[place]
        one = Noticed(scope=column.scope, kind=column.kind, spread=math.expm1(limit.spread.total), found=shown[place])
        key = (column.scope, column.kind)
        if key not in made or one.found > made[key].found:
            made[key] = one
    return tuple(made.values())


def _slowest_missed(limit: Limit) -> float:
    """How slow a node has to be to be found with 95 %, to a tenth of a percent."""
    steps = np.arange(5, 1000) / 1000
    enough = limit.found(np.log1p(-steps)) >= _ASSURANCE
    return float(steps[int(np.argmax(enough))]) if enough.any() else 1.0
