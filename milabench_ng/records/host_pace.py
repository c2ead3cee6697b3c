"""The host pace: how fast the cores of a share did a fixed, short computation at one edge of a batch. Pure.

Tests that are bound by the CPU differ between hosts of one kind, and from minute to minute on one host, because of
clocks, and neighbours on sibling hardware threads and in caches. No counter shows it: steal is 0.
`run.execution.pacing` measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.model.bounds import Amount, WholeNumber
from milabench_ng.model.limits import most
from milabench_ng.model.stats import median

PACE_LIMIT = most("host pace")
"""Relative difference beyond which two host paces count as different."""

_ROUNDED = 0.011
"""MB/s: the paces of a record are rounded to a hundredth."""


class CpuPace(msgspec.Struct, frozen=True):
    """What one CPU did in one burst."""

    mb_per_s: float
    """Pace of the fastest round, by the CPU time of its thread: time that others take on the core does not count."""
    on_cpu: float
    """Share of the time of all rounds in which the thread had a core, 0 to 1."""


class HostPace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pace of the CPUs of one share at one edge of a batch, in MB of input per second of CPU time."""

    library: str = ""
    """The library that computed; the paces of two versions cannot be compared."""
    mb_per_s: Amount | None = None
    """Median of the bursts."""
    bursts: tuple[Amount, ...] = ()
    """Median over the CPUs, for each burst."""
    cpu_min: Amount | None = None
    """Pace of the slowest CPU, median of its bursts; `slowest_cpu` names it."""
    cpu_max: Amount | None = None
    slowest_cpu: WholeNumber | None = None
    on_cpu: Amount | None = None
    """Share of the time in which the threads had a core, 0 to 1; if it is low, others worked there."""
    problem: str | None = None
    """Why it was not measured."""

    def __post_init__(self) -> None:
        if self.bursts and (self.mb_per_s is None or abs(self.mb_per_s - median(self.bursts)) > _ROUNDED):
            raise ValueError(f"damaged: a CPU speed of {self.mb_per_s} MB/s does not follow from its bursts")

    @property
    def measured(self) -> float | None:
        """The pace, if the bursts that it follows from are recorded."""
        return self.mb_per_s or None if self.bursts else None


def pace_of(cpus: Sequence[int], bursts: Sequence[Mapping[int, CpuPace]], library: str) -> HostPace:
    """The pace of a share's ``cpus``, out of all that worked in ``bursts``; needs at least one of each."""
    each = tuple(median([burst[cpu].mb_per_s for cpu in cpus]) for burst in bursts)
    by_cpu = {cpu: median([burst[cpu].mb_per_s for burst in bursts]) for cpu in cpus}
    slowest = min(cpus, key=lambda cpu: by_cpu[cpu])
    return HostPace(
        library=library,
        mb_per_s=round(median(each), 2),
        bursts=tuple(round(value, 2) for value in each),
        cpu_min=round(by_cpu[slowest], 2),
        cpu_max=round(max(by_cpu.values()), 2),
        slowest_cpu=slowest,
        on_cpu=round(median([burst[cpu].on_cpu for burst in bursts for cpu in cpus]), 3),
    )


def moved(before: HostPace, after: HostPace) -> float | None:
    """The relative change from one edge to the other if it is beyond `PACE_LIMIT` and beyond chance, otherwise None.

    Beyond chance: every burst of one edge is faster than every burst of the other. With five bursts at each edge that
    do not differ, this happens once in 126 times (the rank sum test of Wilcoxon, Biometrics Bulletin 1, 1945).
    """
    if before.measured is None or after.measured is None:
        return None
    change = after.measured / before.measured - 1
    apart = max(after.bursts) < min(before.bursts) or max(before.bursts) < min(after.bursts)
    return change if abs(change) > PACE_LIMIT and apart else None
