"""Reads what the groups above the tenants leave to them of the CPUs: a cpuset does not show it.

Documentation/admin-guide/cgroup-v2.rst (CPU), Documentation/scheduler/sched-bwc.rst for v1. In a cgroup namespace the
groups up to its root can be seen, and that root is where containers have their limit; `cpu.stat.local` counts what
groups above it held back.
"""

from __future__ import annotations

from pathlib import Path

from milabench_ng.node.kernel_files import kernel_table, kernel_text
from milabench_ng.records.surroundings import CpuLimit

_WEIGHT_1, _WEIGHT_2 = 1024, 100
"""The defaults of `cpu.shares` and `cpu.weight`."""


def cpu_limits(directory: Path) -> tuple[CpuLimit, ...]:
    """The limits of this group and all above it that are mounted, nearest first."""
    found = []
    while (directory / "cgroup.procs").exists():
        found.append(_limit(directory))
        directory = directory.parent
    return tuple(found)


def _limit(directory: Path) -> CpuLimit:
    stat = kernel_table(directory / "cpu.stat")
    return CpuLimit(
        group=str(directory),
        cpus=_quota(directory),
        weight=_weight(directory),
        periods=stat.get("nr_periods"),
        throttled=stat.get("nr_throttled"),
        held_back_s=_held_back_s(directory),
    )


def _quota(directory: Path) -> float | None:
    text = kernel_text(directory / "cpu.max")
    if text is None:
        text = f"{kernel_text(directory / 'cpu.cfs_quota_us')} {kernel_text(directory / 'cpu.cfs_period_us')}"
    quota, _, period = text.partition(" ")
    return int(quota) / int(period) if quota.isdigit() else None  # v2 says max, v1 -1


def _weight(directory: Path) -> float | None:
    if kernel_text(directory / "cpu.idle") == "1":
        return 0.0
    for name, default in (("cpu.weight", _WEIGHT_2), ("cpu.shares", _WEIGHT_1)):
        text = kernel_text(directory / name)
        if text is not None:
            return int(text) / default
    return None


def _held_back_s(directory: Path) -> float | None:
    """Since Linux 6.6; in microseconds on v2, nanoseconds on v1."""
    local = kernel_table(directory / "cpu.stat.local")
    if "throttled_usec" in local:
        return local["throttled_usec"] / 1e6
    return local["throttled_time"] / 1e9 if "throttled_time" in local else None
