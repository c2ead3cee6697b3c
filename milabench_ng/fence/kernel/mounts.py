"""Finds where cgroups are mounted and this process's place in them, from /proc texts. Pure.

Uses /proc/self/mountinfo instead of /proc/mounts: only the former tells which part of a hierarchy a mount shows and
whether that mount is read-only (proc(5), cgroups(7)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.node import storage
from milabench_ng.records.isolation import Mode

# The controllers that make up a share; a node's mode tells where they are.
OURS = ("cpuset", "memory", "pids")
_OTHERS = (
    "cpu",
    "cpuacct",
    "blkio",
    "freezer",
    "devices",
    "net_cls",
    "net_prio",
    "perf_event",
    "hugetlb",
    "rdma",
    "misc",
)
_V1_CONTROLLERS = frozenset({*OURS, *_OTHERS})


class CgroupMount(msgspec.Struct, frozen=True):
    """One mounted hierarchy. `root` is the group that the mount point shows; `controllers` are named on v1 only."""

    point: str
    root: str
    version: Literal[1, 2]
    controllers: tuple[str, ...] = ()
    read_only: bool = False

    def directory(self, group: str) -> Path | None:
        """The directory of a group named as in /proc/PID/cgroup; None if it is outside what is mounted."""
        relative = os.path.relpath(group, self.root)
        return None if relative.startswith("..") else Path(self.point, relative)

    def group(self, directory: Path) -> str:
        """The name of the group with this directory, as in /proc/PID/cgroup."""
        return os.path.normpath(os.path.join(self.root, os.path.relpath(directory, self.point)))


def parse_mountinfo(text: str) -> tuple[CgroupMount, ...]:
    """The cgroup mounts of a /proc/PID/mountinfo."""
    return tuple(
        CgroupMount(
            point=mount.point,
            root=mount.root,
            version=2 if mount.filesystem == "cgroup2" else 1,
            controllers=tuple(word for word in mount.options if word in _V1_CONTROLLERS),
            read_only="ro" in mount.options,
        )
        for mount in storage.parse_mountinfo(text)
        if mount.filesystem in ("cgroup", "cgroup2")
    )


def parse_own_groups(text: str) -> dict[str, str]:
    """/proc/PID/cgroup as group by controller; v2's is under the empty name."""
    groups = {}
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), group))
    return groups


def parse_disabled(text: str) -> frozenset[str]:
    """Controllers that /proc/cgroups shows as not enabled (`cgroup_disable=` on the kernel's command line)."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return frozenset(name for name, _, _, enabled in rows if enabled == "0")


def find(mounts: Iterable[CgroupMount], controller: str) -> CgroupMount | None:
    """The v1 mount with the controller (empty: the v2 mount), a writable one if there are several."""
    fitting = [m for m in mounts if (controller in m.controllers if controller else m.version == 2)]
    return min(fitting, key=lambda mount: mount.read_only, default=None)


def mode_of(mounts: Iterable[CgroupMount], v2_controllers: Iterable[str]) -> Mode:
    """How our controllers are mounted; `v2_controllers` are those of the v2 hierarchy."""
    mounts = tuple(mounts)
    on_v1 = {name for name in OURS if find(mounts, name)}
    on_v2 = set(OURS) & set(v2_controllers)
    unified = find(mounts, "")
    if on_v1 and on_v2:
        return "mixed"
    if on_v1:
        return "hybrid" if unified else "v1"
    return "v2" if unified else "none"


def own_scope(path: str) -> str:
    """The part of a group's name or directory up to the scope that mnb made for a run; empty if there is none."""
    match = re.match(r".*/mnb-[^/]+\.scope(?=/|$)", path)
    return match[0] if match else ""
