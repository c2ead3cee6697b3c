"""What a record says about a tenant's fence: what was requested, what the kernel enforced, what was used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from milabench_ng.model.bounds import WholeNumber

Tier = Literal["full", "partial", "affinity", "none"]
"""full: CPUs and RAM held by the kernel; partial: one of the two; affinity: neither (NOT ISOLATED); none: no fence."""

Mode = Literal["v2", "hybrid", "v1", "mixed", "none"]
"""How the node mounts cgroups; hybrid: our limits are on v1, next to a v2 hierarchy without them."""

IoMethod = Literal["io.max", "blkio.throttle", "readers", "none"]
"""What limits I/O bandwidth.

A file of cgroup v2, files of v1, a token bucket in the readers of the dataset, or nothing because no fence was
requested.
"""

GroupsBy = Literal["mnb", "scheduler", "nobody"]
"""Who makes the tenants' groups.

mnb, and nobody else sets limits in them; a scheduler, which chooses the CPUs and memory nodes itself; or nobody.
"""

DeathCause = Literal["isolation_lost", "oom", "host_oom", "pids_limit", "timeout", "signal", "exit"]
"""What ended a tenant: the first in this order that applies."""

_STRENGTH: tuple[Tier, ...] = ("none", "affinity", "partial", "full")


def weakest_tier(tiers: Sequence[Tier]) -> Tier:
    return min(tiers, key=_STRENGTH.index)


class IoLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bandwidth limit on one block device (`major:minor`), None for none."""

    device: str
    read_bytes_per_s: int | None = None
    write_bytes_per_s: int | None = None


class CachePart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tenant's part of one last-level cache and of the memory bandwidth behind it (filesystems/resctrl)."""

    cache: int
    """Its id, a domain of resctrl."""
    mask: int
    """The parts of the cache that it may fill, as bits."""
    bandwidth_pct: int | None = None
    """None where the bandwidth is not divided."""

    @property
    def text(self) -> str:
        """``cache 0: 5 parts (1f), 50 % of the bandwidth``."""
        bandwidth = "" if self.bandwidth_pct is None else f", {self.bandwidth_pct}% of the bandwidth"
        return f"cache {self.cache}: {self.mask.bit_count()} parts ({self.mask:x}){bandwidth}"


CacheParts = tuple[CachePart, ...] | msgspec.UnsetType
"""By cache; omitted where none is asked for."""


def cache_text(parts: CacheParts) -> str:
    """All parts in words; empty for none."""
    return "" if parts is msgspec.UNSET else "; ".join(part.text for part in parts)


class Share(msgspec.Struct, frozen=True):
    """What one tenant gets of the node.

    `mems` are the NUMA nodes that it may allocate on, `nodes` those that its CPUs are on; `local` is the part of its
    CPUs on the node of its device, None if the kernel does not name that node; `memory_nominal_bytes` is its part of
    the node's RAM, before the system's reserve; `pids` counts threads; `device_part` is the part of the device's memory
    that torch may use, omitted for all of it; `cache` has a part of each cache that it has CPUs behind.
    """

    cpus: tuple[int, ...]
    mems: tuple[int, ...]
    memory_bytes: int
    memory_nominal_bytes: int
    pids: int
    cores: int
    nodes: tuple[int, ...] = ()
    local: float | None = None
    smt_shared: bool = False
    io: tuple[IoLimit, ...] = ()
    device_part: float | msgspec.UnsetType = msgspec.UNSET
    cache: CacheParts = msgspec.UNSET


class MemoryLimit(msgspec.Struct, frozen=True):
    """The limit of one group on the way up from the tenant's; None for no limit."""

    group: str
    memory_bytes: int | None


class Effective(msgspec.Struct, frozen=True):
    """Limits as read back from the kernel; None if it enforces none of that kind.

    `oom_group`: one out-of-memory kill takes the whole group. `ancestors`: nearest first. `cache`: of all caches of the
    node; `in_cache_group`: whether it holds all threads of the tenant.
    """

    cpus: tuple[int, ...] | None = None
    mems: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    oom_group: bool | None = None
    pids: int | None = None
    io: tuple[IoLimit, ...] = ()
    ancestors: tuple[MemoryLimit, ...] = ()
    cache: CacheParts = msgspec.UNSET
    in_cache_group: bool | msgspec.UnsetType = msgspec.UNSET


class Confinement(msgspec.Struct, frozen=True):
    """Which means of leaving its fence a process has given up, as /proc shows it. What a user may not do is False.

    `cgroup_namespace`, `ipc_namespace`: it has its own; `groups_read_only`: no cgroup mount that it sees is writable;
    `no_new_privs`: no exec gives it more; `capabilities`: the names of those that it has left.
    """

    cgroup_namespace: bool
    groups_read_only: bool
    ipc_namespace: bool
    no_new_privs: bool
    capabilities: tuple[str, ...]


class Scheduling(msgspec.Struct, frozen=True):
    """The class, niceness and soft limits (those that are not infinite, by name, as in /proc/PID/limits) of a process.

    The class is ``other`` for all that nobody has changed (sched(7)).
    """

    policy: str
    nice: int
    limits: dict[str, int]


_LEAST = {"open files": 1024, "processes": 1024}
"""What is enough; of everything else, only no limit is."""


def handicaps(seen: Scheduling) -> Iterator[str]:
    """What makes a process slower or faster than others, or fail where they do not. Pure."""
    if seen.policy != "other":
        yield f"scheduling class {seen.policy}"
    if seen.nice:
        yield f"niceness {seen.nice}"
    for name, limit in seen.limits.items():
        if limit < _LEAST.get(name, limit + 1):
            yield f"{name} limited to {limit}"


class ProcView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process as /proc shows it: its groups (`hierarchy:controllers:path`), CPUs, memory nodes, threads, files.

    Records of before 0.4 lack `confinement` and `scheduling`.
    """

    pid: int
    groups: tuple[str, ...]
    cpus_allowed: tuple[int, ...]
    mems_allowed: tuple[int, ...]
    threads: int
    open_fds: dict[str, str]
    confinement: Confinement | None = None
    scheduling: Scheduling | None = None


class Pressure(msgspec.Struct, frozen=True):
    """Time in which some, or all, tasks of the group were stalled for lack of a resource."""

    some_s: float
    full_s: float | None = None


class Usage(msgspec.Struct, frozen=True):
    """What a group has used since it was made; None if this kernel does not count it.

    `memory_peak_bytes` includes page cache, so on jobs that read files it says little about need; the largest sampled
    `anon_shmem_max_bytes` does. `anon_bytes`, `shmem_bytes` (with pinned buffers) and `page_cache_bytes` (file pages
    without shared memory) are those of that sample, `memory_bytes` is now. `cache_bytes` lie in last-level caches now,
    `memory_traffic_bytes` went between them and memory, where resctrl counts that of a tenant with parts of its own.
    """

    cpu_usec: int | None = None
    throttled_usec: int | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    anon_bytes: int | None = None
    shmem_bytes: int | None = None
    page_cache_bytes: int | None = None
    anon_shmem_max_bytes: int | None = None
    page_cache_max_bytes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    pids_peak: int | None = None
    pressure: dict[str, Pressure] = msgspec.field(default_factory=dict)
    cache_bytes: int | msgspec.UnsetType = msgspec.UNSET
    memory_traffic_bytes: int | msgspec.UnsetType = msgspec.UNSET


class GroupEvents(msgspec.Struct, frozen=True):
    """Counters of things that should not happen. A verdict asks whether one rose, never by how much.

    `oom` counts that the group hit its own limit (v2 only), `oom_kill` that a process of it was killed, by its own
    limit or another; `pids_max` refused forks; `host_oom_kill` out-of-memory kills anywhere on the node, where the
    group has no count of its own.
    """

    oom_kill: int = 0
    oom: int | None = None
    oom_group_kill: int | None = None
    pids_max: int | None = None
    host_oom_kill: int | None = None


class IoEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The I/O share of a tenant: what was requested, what enforces it on which disk, and what a probe got.

    The probe reads, and writes if writes are limited, for about a second each, on the disk (not in the page cache),
    inside the tenant's group before its worker starts, while those of its neighbours do the same. `problem` says why
    there is no figure of a probe. The readers of a dataset are not probed: `reader_*` is what they read in the launch.
    """

    method: IoMethod
    device: str
    """`major:minor` of the whole disk."""
    disk: str
    """Its name."""
    read_bytes_per_s: WholeNumber | None = None
    write_bytes_per_s: WholeNumber | None = None
    override: bool = False
    """The command line changed what the profile says."""
    probed_bytes: int | None = None
    probed_read_bytes_per_s: float | None = None
    probed_write_bytes_per_s: float | None = None
    reason: str | None = None
    """Why the readers limit the bandwidth, and not the kernel."""
    reader_bytes: int | None = None
    reader_bytes_per_s: float | None = None
    problem: str | None = None


class Death(msgspec.Struct, frozen=True):
    """What ended a tenant, and the sentence that explains it to the reader of the report."""

    cause: DeathCause
    detail: str


class Isolation(msgspec.Struct, frozen=True):
    """The fence around one tenant in one record: all that is needed to judge it."""

    backend: str
    tier: Tier
    mode: Mode
    kernel: str
    parent: str
    group: str
    requested: Share
    effective: Effective | None = None
    effective_end: Effective | None = None
    proc: ProcView | None = None
    disjoint: bool | None = None
    usage: Usage | None = None
    events_before: GroupEvents | None = None
    events_after: GroupEvents | None = None
    io: IoEvidence | None = None
    notes: tuple[str, ...] = ()
    groups_by: GroupsBy | msgspec.UnsetType = msgspec.UNSET
    """Omitted in records that knew it by the back end's name alone."""

    @property
    def grouped_by(self) -> GroupsBy:
        """Who made the tenant's group."""
        return _GROUPS_BY.get(self.backend, "nobody") if self.groups_by is msgspec.UNSET else self.groups_by


_GROUPS_BY: dict[str, GroupsBy] = {"cgroup1": "mnb", "cgroup2": "mnb", "scope": "mnb", "slurm": "scheduler"}
"""By the back ends of records that do not say."""
