"""How it stands with a fleet that is at work, in the lines of a terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.ledger import Key, Standing
from milabench_ng.model.plain import plain
from milabench_ng.model.units import counted

_ORDER = ("lost", "cut off", "running", "pending", "ended")
"""What asks for attention first."""


def live_lines(found: FleetFolder, width: int, height: int) -> list[str]:
    """The sum of all nodes, then a line for each session, those that are done last; at most ``height`` lines."""
    rows = sorted(found.standings.items(), key=lambda row: (_ORDER.index(row[1].state), row[0][1], row[0][0]))
    room = max(1, height - 1)
    shown = rows if len(rows) <= room else rows[: room - 1]
    names = max((len(node) for (node, _), _ in shown), default=0)
    sessions = max((len(session) for (_, session), _ in shown), default=0)
    lines = [_sum(found)]
    lines += [f"{node:{names}}  {session:{sessions}}  {_in_words(one)}" for (node, session), one in shown]
    if len(shown) < len(rows):
        lines.append(f"and {len(rows) - len(shown):,} more: mnb fleet status")
    return [plain(line)[:width] for line in lines]


def changes(before: Mapping[Key, Standing], after: Mapping[Key, Standing]) -> Iterator[str]:
    """A line for each session that stands otherwise than before."""
    for (node, session), one in after.items():
        known = before.get((node, session), Standing())
        if (one.state, one.collected) != (known.state, known.collected):
            yield plain(f"{node} {session}: {_in_words(one)}")


def _sum(found: FleetFolder) -> str:
    every = found.standings.values()
    states, done = Counter(one.state for one in every), sum(one.here for one in every)
    nodes, sessions = counted(len(found.manifest.nodes), "node"), counted(len(every), "session")
    told = [f"{nodes}: {done:,} of {sessions} done"]
    told += [f"{states[state]:,} {state}" for state in ("running", "cut off", "pending", "lost") if states[state]]
    return ", ".join(told)


def _in_words(one: Standing) -> str:
    since = f" since {one.since_utc[11:19]} UTC" if one.since_utc else ""
    what = {True: "collected", False: "ended, not collected"}[one.collected] if one.state == "ended" else one.state
    failed = ", a launch failed" if one.failed else ""
    return f"{what}{since}{failed}{f': {one.reason}' if one.reason else ''}"
