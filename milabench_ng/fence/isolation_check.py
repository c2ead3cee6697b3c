"""Interprets the kernel's answers: does it enforce the share, did that change, what killed a tenant. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping

import msgspec

from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.fence.kernel.mounts import parse_own_groups
from milabench_ng.model.units import GIB, format_bytes
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.records.isolation import (
    CachePart,
    Death,
    Effective,
    GroupEvents,
    IoLimit,
    ProcView,
    Share,
    Usage,
    cache_text,
)

# On v1 only a full group distinguishes its own out-of-memory kill from one of the whole node.
_NEARLY_FULL = 0.9
# Below this fraction of the limit, the last samples say nothing about the moment of death.
_SEEN_COMING = 0.5


def check(
    name: str, share: Share, effective: Effective, proc: ProcView, groups: Mapping[str, str], pin: bool = True
) -> None:
    """Raise IsolationMismatch unless the kernel holds the tenant's process to its share.

    `groups` are those that it must be in, by controller; `pin`: whether it must be bound to the share's CPUs.
    """
    found = [*_differences(share, effective), *_proc_differences(share, effective, proc, groups, pin)]
    if found:
        raise IsolationMismatch(f"isolation: {name} {'; '.join(found)}: run stopped.")


def changes(entry: Effective, end: Effective) -> tuple[str, ...]:
    """What differs between entry and end: the reason for `isolation_lost`."""
    names = (
        *("cpus", "mems", "memory_bytes", "swap_bytes", "oom_group", "pids", "io", "ancestors"),
        *("cache", "in_cache_group"),
    )
    return tuple(
        f"{name} was {_plain(getattr(entry, name))} at entry and is {_plain(getattr(end, name))}"
        for name in names
        if getattr(entry, name) != getattr(end, name)
    )


def verdict(
    before: GroupEvents,
    after: GroupEvents,
    usage: Usage,
    limit_bytes: int | None,
    returncode: int | None,
    timed_out: bool = False,
    lost: tuple[str, ...] = (),
) -> Death | None:
    """Why a tenant failed, the first reason that applies; None if it did not.

    `returncode` is negative for a signal, None for a tenant that had to be stopped; `lost` comes from `changes`.
    An out-of-memory kill or a lost limit makes a launch fail even if its process exits with 0.
    """
    if lost:
        return Death("isolation_lost", "its limits changed during the run: " + "; ".join(lost))
    if after.oom_kill > before.oom_kill:
        return _killed_for_memory(before, after, usage, limit_bytes)
    if returncode == 0 and not timed_out:
        return None
    if _rose(before.host_oom_kill, after.host_oom_kill) and returncode == -signal.SIGKILL and not timed_out:
        return Death("host_oom", "the whole node ran out of memory and the kernel killed it")
    if _rose(before.pids_max, after.pids_max):
        return Death("pids_limit", "it reached its limit of processes and threads, and a fork failed")
    if timed_out or returncode is None:
        return Death("timeout", "it did not end in its time")
    if returncode < 0:
        return Death("signal", f"killed by {_signal_name(-returncode)}")
    return Death("exit", f"exit status {returncode}")


def with_maxima(before: Usage | None, now: Usage) -> Usage:
    """The reading `now` with the maxima over it and all readings up to `before`, for what the kernel keeps none.

    Anonymous and shared memory are kept from the fullest reading: after a death nothing is left to read.
    """
    sampled = msgspec.structs.replace(
        now,
        anon_shmem_max_bytes=_sum(now.anon_bytes, now.shmem_bytes),
        page_cache_max_bytes=now.page_cache_bytes,
        memory_peak_bytes=now.memory_peak_bytes or now.memory_bytes,
    )
    if before is None:
        return sampled
    if (before.anon_shmem_max_bytes or 0) > (sampled.anon_shmem_max_bytes or 0):
        sampled = msgspec.structs.replace(
            sampled,
            anon_bytes=before.anon_bytes,
            shmem_bytes=before.shmem_bytes,
            page_cache_bytes=before.page_cache_bytes,
        )
    names = ("anon_shmem_max_bytes", "page_cache_max_bytes", "memory_peak_bytes", "pids_peak", "cpu_usec")
    return msgspec.structs.replace(
        sampled, **{name: _larger(getattr(before, name), getattr(sampled, name)) for name in names}
    )


def _differences(share: Share, effective: Effective) -> Iterator[str]:
    """What the kernel enforces differently from the request."""
    for what, asked, given in (("CPUs", share.cpus, effective.cpus), ("NUMA nodes", share.mems, effective.mems)):
        if given is not None and given != asked:
            yield (
                f"requested {what} {format_ids(asked)}, but the kernel gives {format_ids(given)} "
                f"({what} {format_ids(set(asked) - set(given) or asked)} offline or outside the parent's cpuset)"
            )
    if effective.memory_bytes is not None and effective.memory_bytes != share.memory_bytes:
        yield f"requested {share.memory_bytes} bytes of RAM, but the kernel gives {effective.memory_bytes}"
    if effective.swap_bytes:
        yield f"may swap {format_bytes(effective.swap_bytes)}"
    if effective.pids is not None and effective.pids != share.pids:
        yield f"requested {share.pids} processes, but the kernel gives {effective.pids}"
    if set(share.io) != set(effective.io):
        yield f"requested the I/O limits {_io(share.io)}, but the kernel gives {_io(effective.io)}"
    yield from _cache_differences(share, effective)
    for limit in effective.ancestors if effective.memory_bytes is not None else ():
        if limit.memory_bytes is not None and limit.memory_bytes < share.memory_bytes:
            yield f"requested {share.memory_bytes} bytes of RAM, but {limit.group} gives only {limit.memory_bytes}"


def _cache_differences(share: Share, effective: Effective) -> Iterator[str]:
    if share.cache is msgspec.UNSET:
        return
    held = () if effective.cache is msgspec.UNSET else effective.cache
    if not set(share.cache) <= set(held):
        yield f"requested {cache_text(share.cache)}, but the kernel gives {cache_text(held) or 'none'}"
    if not effective.in_cache_group:
        yield "has tasks outside its group of resctrl"


def _proc_differences(
    share: Share, effective: Effective, proc: ProcView, groups: Mapping[str, str], pin: bool
) -> Iterator[str]:
    inside = parse_own_groups("\n".join(proc.groups))
    for controller, group in groups.items():
        if inside.get(controller) != group:
            yield f"is in group {inside.get(controller)} of {controller or 'cgroup2'} and not in {group}"
    if pin and proc.cpus_allowed != share.cpus:
        yield f"requested CPUs {format_ids(share.cpus)}, but its process may run on {format_ids(proc.cpus_allowed)}"
    if effective.mems is not None and proc.mems_allowed != share.mems:
        yield f"requested NUMA nodes {format_ids(share.mems)}, but its process has {format_ids(proc.mems_allowed)}"


def _killed_for_memory(before: GroupEvents, after: GroupEvents, usage: Usage, limit_bytes: int | None) -> Death:
    if limit_bytes is None:
        return Death("oom", "it used more than its RAM allocation and was stopped")
    full = (usage.memory_peak_bytes or 0) >= _NEARLY_FULL * limit_bytes
    own = full if after.oom is None else after.oom > (before.oom or 0)
    if not own:
        return Death("host_oom", f"killed for memory that it did not use: {_memory_figures(limit_bytes, usage)}")
    return Death("oom", f"out of memory in its allocation: {_memory_figures(limit_bytes, usage)}")


def _memory_figures(limit_bytes: int, usage: Usage) -> str:
    sizes = [size or 0 for size in (usage.anon_bytes, usage.shmem_bytes, usage.page_cache_bytes)]
    anon, shmem, cache = (f"{size / GIB:.1f}" for size in sizes)
    limit = f"limit {limit_bytes / GIB:.1f} GiB"
    if sum(sizes) < _SEEN_COMING * limit_bytes:
        peak = "unknown" if usage.memory_peak_bytes is None else f"{usage.memory_peak_bytes / GIB:.1f} GiB"
        return f"{limit}, peak {peak}; it grew too fast to see which kind. Pinned buffers and /dev/shm count."
    return (
        f"{limit}, anon {anon}, shmem+pinned {shmem}, page cache {cache} GiB at death. "
        "Pinned buffers and /dev/shm count."
    )


def _io(limits: tuple[IoLimit, ...]) -> str:
    return (
        ", ".join(f"{one.device} read {one.read_bytes_per_s} write {one.write_bytes_per_s}" for one in limits) or "none"
    )


def _signal_name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return known.get(number, f"signal {number}")


def _plain(value: object) -> str:
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return format_ids(value) or "none"
    if isinstance(value, tuple) and all(isinstance(item, CachePart) for item in value):
        return cache_text(value)
    return "unlimited" if value is None else str(value)


def _rose(before: int | None, after: int | None) -> bool:
    return after is not None and after > (before or 0)


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)


def _larger(first: int | None, second: int | None) -> int | None:
    return max((value for value in (first, second) if value is not None), default=None)
