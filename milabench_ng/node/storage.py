"""What a folder lies on: file system, device, options, space. From ``/proc/self/mountinfo`` (proc(5)) and statvfs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.node.pci_gpus import kernel_text

StorageKind = Literal["disk", "memory", "network", "overlay", "other"]

_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "virtiofs", "afs", "wekafs"}
)


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder lies on."""

    path: str
    mount_point: str
    filesystem: str
    kind: StorageKind
    """``network`` and FUSE file systems depend on more than this node; ``memory`` is charged to whoever writes it."""
    source: str
    device: str | None
    """Kernel name of the block device, such as ``nvme0n1p2``; None where there is none."""
    options: tuple[str, ...]
    rotational: bool | None
    """What the block device says; virtual disks often claim to rotate."""
    total_bytes: int
    free_bytes: int
    """What an ordinary user may still write."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A line of mountinfo."""

    device_number: str
    root: str
    """What of the file system is shown; of a cgroup hierarchy, the group."""
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts, in the order in which they were mounted."""
    return tuple(_parse_line(line) for line in text.splitlines() if line)


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount:
    """The mount that an absolute, resolved path lies on: the deepest one, of equal ones the last mounted.

    Raises ``LookupError`` where no mount covers the path, which a complete table never shows.
    """
    covering = [mount for mount in mounts if path.is_relative_to(mount.point)]
    if not covering:
        raise LookupError(f"no mount covers {path}")
    deepest = max(len(mount.point) for mount in covering)
    return [mount for mount in covering if len(mount.point) == deepest][-1]


def read_storage(path: Path, mountinfo: Path = Path("/proc/self/mountinfo"), sysfs: Path = Path("/sys")) -> Storage:
    """What ``path`` lies on. A path that does not exist yet is judged by its nearest ancestor that does."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists()).resolve()
    mount = mount_of(there, parse_mountinfo(mountinfo.read_text()))
    block = _block_device(mount, sysfs)
    space = os.statvfs(there)
    return Storage(
        path=str(path.absolute()),
        mount_point=mount.point,
        filesystem=mount.filesystem,
        kind=_kind(mount),
        source=mount.source,
        device=block.name if block else None,
        options=mount.options,
        rotational=_rotational(block) if block else None,
        total_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
    )


def _parse_line(line: str) -> Mount:
    """Fields before `` - `` are of the mount, those after it of the file system; the number of the former varies."""
    of_mount, _, of_filesystem = line.partition(" - ")
    _, _, number, root, point, options, *_ = of_mount.split(" ")
    filesystem, source, super_options, *_ = [*of_filesystem.split(" "), ""]
    both = dict.fromkeys(option for option in f"{options},{super_options}".split(",") if option)
    return Mount(
        device_number=number,
        root=_unescape(root),
        point=_unescape(point),
        filesystem=filesystem,
        source=_unescape(source),
        options=tuple(both),
    )


def _unescape(text: str) -> str:
    """Blank, tab, newline and backslash are written as octal escapes."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text


def _kind(mount: Mount) -> StorageKind:
    name = mount.filesystem
    if name in _MEMORY:
        return "memory"
    if name in _NETWORK or name.startswith("fuse"):
        return "network"
    if name == "overlay":
        return "overlay"
    return "disk" if mount.source.startswith("/dev/") else "other"


def _block_device(mount: Mount, sysfs: Path) -> Path | None:
    """The device's folder in sysfs. btrfs shows an anonymous number, so there the source's name decides."""
    by_number = sysfs / "dev/block" / mount.device_number
    by_name = sysfs / "class/block" / Path(mount.source).name
    if by_number.exists():
        return by_number.resolve()
    return by_name.resolve() if mount.source.startswith("/dev/") and by_name.exists() else None


def _rotational(block: Path) -> bool | None:
    """A partition has no queue of its own: its disk's counts."""
    text = kernel_text(block / "queue/rotational") or kernel_text(block.parent / "queue/rotational")
    return None if text is None else text == "1"
