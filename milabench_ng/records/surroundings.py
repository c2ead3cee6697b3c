"""What else shared the node's CPUs with a batch: groups above the tenants, other runs, and mnb itself.

Read at both edges of a batch. Counters are cumulative, so that their difference is what happened in between.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from milabench_ng.model.limits import most
from milabench_ng.records.marks import Mark


class CpuLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What one group leaves to all that is in and below it; None for what its kernel does not say.

    On cgroup v2 `cpu.max`, `cpu.weight` and `cpu.stat`, on v1 `cpu.cfs_*_us`, `cpu.shares` and `cpu.stat`
    (Documentation/scheduler/sched-bwc.rst).
    """

    group: str
    cpus: float | None = None
    """The quota as a number of CPUs; None for no quota."""
    weight: float | None = None
    """Relative to the kernel's default, 1: what it gets when groups beside it want the same CPUs."""
    periods: int | None = None
    """Periods of its quota in which it ran, and those in which it had to wait for the next."""
    throttled: int | None = None
    held_back_s: float | None = None
    """Time, summed over CPUs, in which a quota held it back: its own or that of any group above, seen or not."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounded a batch, at one edge."""

    time_s: float
    """When it was read (monotonic)."""
    cpus: int
    """Number of CPUs in the shares of the batch."""
    cpu_limits: tuple[CpuLimit, ...]
    """Of the groups above the tenants that can be seen, nearest first."""
    contested: tuple[str, ...]
    """CPUs and GPUs of this run that another run claims too."""
    machinery_cpu_s: float
    """CPU time of orchestrator, worker server and sampler, with those that were lost and replaced: it only rises."""


def tightest(limits: tuple[CpuLimit, ...], cpus: int) -> CpuLimit | None:
    """The smallest quota that gives less than ``cpus``; None if none does."""
    quotas = [(limit.cpus, limit.group, limit) for limit in limits if limit.cpus is not None and limit.cpus < cpus]
    return min(quotas, key=lambda one: one[:2])[2] if quotas else None


def held_back(before: Surroundings, after: Surroundings) -> tuple[str, float]:
    """The group that a quota held back most between the edges, and the part of the time, 0 to 1."""
    began = {limit.group: limit for limit in before.cpu_limits}
    found = [("", 0.0)]
    for limit in after.cpu_limits:
        first = began.get(limit.group, CpuLimit(group=limit.group))
        waited = (limit.throttled or 0) - (first.throttled or 0)
        periods = (limit.periods or 0) - (first.periods or 0)
        seconds = (limit.held_back_s or 0.0) - (first.held_back_s or 0.0)
        found.append((limit.group, waited / max(periods, waited, 1)))
        found.append((limit.group, seconds / (after.cpus * (after.time_s - before.time_s))))
    return max(found, key=lambda one: one[1])


def marks_of_surroundings(before: Surroundings, after: Surroundings) -> Iterator[Mark]:
    """Other runs on the same CPUs, and quotas above the tenants, at either edge."""
    contested = sorted({*before.contested, *after.contested})
    if contested:
        yield Mark(kind="CPUs shared with another run", what=", ".join(contested))
    quota = tightest((*before.cpu_limits, *after.cpu_limits), after.cpus)
    if quota is not None:
        yield Mark(kind="CPU quota", what=quota.group, value=quota.cpus, limit=after.cpus)
    group, fraction = held_back(before, after)
    limit = most("held back by a CPU quota")
    if fraction > limit:
        yield Mark(kind="held back by a CPU quota", what=group, value=fraction, limit=limit)
