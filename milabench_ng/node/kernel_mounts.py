"""What is mounted over files of ``/proc`` and ``/sys``: whoever reads them reads that instead of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milabench_ng.node.storage import Mount, parse_mountinfo

OF_THE_KERNEL = frozenset(
    {
        *("proc", "sysfs", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "pstore", "bpf", "configfs"),
        *("fusectl", "efivarfs", "selinuxfs", "smackfs", "resctrl", "binfmt_misc", "autofs", "nfsd", "xenfs"),
    }
)
"""File systems that the kernel itself has below these folders."""
LXCFS = "fuse.lxcfs"
"""Shows containers their own part of the node: how many CPUs, how much RAM, how long since their start."""


def covered(mountinfo: str) -> tuple[str, ...]:
    """The mounts below ``/proc`` and ``/sys`` that are not the kernel's own: ``tmpfs on /proc/acpi``. Pure."""
    return tuple(dict.fromkeys(_odd(parse_mountinfo(mountinfo))))


def _odd(mounts: tuple[Mount, ...]) -> Iterator[str]:
    for mount in mounts:
        top, _, inside = mount.point.removeprefix("/").partition("/")
        if top not in ("proc", "sys") or mount.point == "/sys/fs/cgroup":
            continue
        if mount.filesystem not in OF_THE_KERNEL:
            elsewhere = mount.filesystem == LXCFS and mount.root != mount.point  # it shows a file in its own place
            yield f"{mount.filesystem} {f'{mount.root} ' if elsewhere else ''}on {mount.point}"
        elif mount.filesystem == {"proc": "proc", "sys": "sysfs"}[top] and Path(mount.root) != Path("/") / inside:
            yield f"{mount.filesystem} {mount.root} on {mount.point}"
