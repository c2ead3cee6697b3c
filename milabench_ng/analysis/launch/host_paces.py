"""The host pace of a run: its spread over batches, sessions and the devices' shares. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from milabench_ng.model.bounds import LARGEST, Amount
from milabench_ng.model.grouping import grouped
from milabench_ng.model.plain import short
from milabench_ng.model.stats import median
from milabench_ng.model.units import counted
from milabench_ng.records.host_pace import PACE_LIMIT, HostPace, moved
from milabench_ng.records.record import Mnb

Pace = Annotated[float, msgspec.Meta(gt=0, le=LARGEST)]
Named = Annotated[dict[str, "PaceStat"], msgspec.Meta(min_length=1)]

PACE_UNIT = "MB/s per CPU"
_FOREIGN = 0.1
"""Share of their cores that the check's threads may lose before this is reported."""


class PaceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The pace of one share at both edges of one batch."""

    run: str
    session: int
    batch: int
    device: str
    before: HostPace
    after: HostPace

    @property
    def in_batch(self) -> tuple[str, int, int]:
        """The key of its batch."""
        return self.run, self.session, self.batch

    @property
    def known(self) -> list[float]:
        """The measured values."""
        return [edge.measured for edge in (self.before, self.after) if edge.measured is not None]

    @property
    def library(self) -> str:
        """The library that computed; empty if none did."""
        return self.before.library or self.after.library


class PaceStat(msgspec.Struct, frozen=True):
    """The pace over several batches, in MB of input per second of CPU time."""

    n: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    median: Pace
    min: Pace
    max: Pace


class Paces(msgspec.Struct, frozen=True, kw_only=True):
    """The host pace of a result folder."""

    library: str
    run: PaceStat
    sessions: Named
    """By session, numbered in order from 1."""
    devices: Named
    """Pace of the CPUs in each device's share, by device index."""
    changed: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    """Batches in which a share's pace changed from one edge to the other."""
    on_cpu: Amount = 1.0
    """Share of the time for which the threads had their cores, on the worst device."""

    @property
    def slow(self) -> dict[str, float]:
        """The devices whose cores are slower than the others' median by more than `PACE_LIMIT`, and by how much."""
        found = {}
        for device, stat in self.devices.items():
            others = [other.median for name, other in self.devices.items() if name != device]
            if others and differ(stat.median, median(others)) and stat.median < median(others):
                found[device] = stat.median / median(others) - 1
        return found

    @property
    def uneven(self) -> bool:
        """Whether the pace changed over a batch, or differs between sessions."""
        middles = [stat.median for stat in self.sessions.values()]
        return self.changed > 0 or differ(min(middles), max(middles))

    @property
    def changes(self) -> str:
        """In how many launch groups the pace changed."""
        groups = counted(self.run.n, "launch group")
        return f"CPU speed changed by more than {100 * PACE_LIMIT:.0f}% in {self.changed} of {groups}"

    @property
    def disturbed(self) -> str:
        """What else used the cores while they were checked; empty if nothing that matters did."""
        used = 1 - self.on_cpu
        return f"other programs used {100 * used:.0f}% of the cores" if used > _FOREIGN else ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What its numbers alone do not say."""
        said = [f"computed by {self.library}"]
        if len(self.devices) > 1:
            said.append("all: the median of all checks of a launch group")
        if self.slow:
            named = ", ".join(f"device {device} ({100 * change:+.1f}%)" for device, change in self.slow.items())
            said.append(f"slow cores: {named}")
        if self.changed:
            said.append(self.changes)
        if self.disturbed:
            said.append(f"{self.disturbed} during these checks")
        return tuple(said)


def launch_paces(mnb: Mnb) -> tuple[PaceSeen, ...]:
    """The paces of a launch's shares; empty for a record from before they were measured."""
    return tuple(
        PaceSeen(
            run=mnb.run_id,
            session=mnb.session,
            batch=mnb.batch,
            device=device,
            before=edges["before"],
            after=edges["after"],
        )
        for device, edges in mnb.host_pace.items()
        if {"before", "after"} <= edges.keys()
    )


def paces(seen: Sequence[PaceSeen]) -> Paces | None:
    """The paces of a folder; None if none was measured. A batch counts once, with the median of its shares and edges.

    Paces computed by a library other than the first are different computations, and are left out.
    """
    library = next((each.library for each in seen if each.known), "")
    used = [each for each in seen if each.known and each.library == library]
    if not used:
        return None
    sessions = sorted(grouped(used, lambda each: (each.run, each.session)).items())
    devices = sorted(grouped(used, lambda each: each.device).items(), key=lambda item: (len(item[0]), item[0]))
    return Paces(
        library=short(library),
        run=_stat(used),
        sessions={str(number): _stat(group) for number, (_, group) in enumerate(sessions, 1)},
        devices={device: _stat(group) for device, group in devices},
        changed=len({each.in_batch for each in used if moved(each.before, each.after) is not None}),
        on_cpu=min(_on_cpu(group) for _, group in devices),
    )


def without_pace(seen: Sequence[PaceSeen]) -> tuple[str, ...]:
    """Why some batches have no pace, or none that counts."""
    problems = [edge.problem for each in seen for edge in (each.before, each.after) if edge.problem]
    bare = any(edge.mb_per_s and not edge.bursts for each in seen for edge in (each.before, each.after))
    libraries = dict.fromkeys(each.library for each in seen if each.known)
    return (
        *(f"CPU speed check not done: {short(problem)}" for problem in dict.fromkeys(problems)),
        *(["CPU speed checks without recorded bursts are left out"] if bare else []),
        *(f"CPU speed checks made with {short(other)} are left out" for other in list(libraries)[1:]),
    )


def differ(one: float, other: float) -> bool:
    """Whether two paces are further apart than `PACE_LIMIT` of the faster."""
    return min(one, other) < (1 - PACE_LIMIT) * max(one, other)


def _stat(seen: Sequence[PaceSeen]) -> PaceStat:
    batches = grouped(seen, lambda each: each.in_batch).values()
    values = [median([value for each in batch for value in each.known]) for batch in batches]
    return PaceStat(len(values), median(values), min(values), max(values))


def _on_cpu(seen: Sequence[PaceSeen]) -> float:
    edges = (edge for each in seen for edge in (each.before, each.after))
    known = [edge.on_cpu for edge in edges if edge.on_cpu is not None]
    return median(known) if known else 1.0
