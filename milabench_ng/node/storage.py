"""A folder's storage: file system, device, options, space, from ``/proc/self/mountinfo`` (proc(5)) and statvfs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.model.files import nearest
from milabench_ng.node.kernel_files import kernel_text

StorageKind = Literal["disk", "memory", "network", "overlay", "other"]

MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_RAM_DISKS = ("ram", "zram")
"""Block devices that are memory (brd, zram); a partition has its disk's name."""
_DELETED = " (deleted)"
"""What the kernel adds to the name of a file that is open and gone."""
UNKNOWN = "unknown"
"""The file system of a file that cannot be seen."""
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "virtiofs", "afs", "wekafs"}
)


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """The storage of a folder."""

    path: str
    mount_point: str
    filesystem: str
    kind: StorageKind
    """``network`` and FUSE file systems depend on more than this node; ``memory`` is charged to the writer."""
    source: str
    device: str | None
    """Kernel name of the block device, such as ``nvme0n1p2``; None if there is none."""
    options: tuple[str, ...]
    rotational: bool | None
    """As the block device reports; virtual disks often claim to rotate."""
    total_bytes: int
    free_bytes: int
    """Space available to an ordinary user."""
    rests_on: tuple[Storage, ...] = ()
    """What is below a loop device: the storage of its file, `UNKNOWN` if that was deleted or lies elsewhere; records of
    before 0.3 do not say it."""
    inside: tuple[Storage, ...] = ()
    """The file systems that are mounted below the path."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A line of mountinfo."""

    device_number: str
    root: str
    """The part of the file system that is shown; for a cgroup hierarchy, the group."""
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts, in mount order."""
    return tuple(_parse_line(line) for line in text.splitlines() if line)


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount:
    """The mount that holds an absolute, resolved path: the deepest one, and the last mounted among equals.

    Raises ``LookupError`` if no mount covers the path, which does not happen with a complete table.
    """
    covering = [mount for mount in mounts if path.is_relative_to(mount.point)]
    if not covering:
        raise LookupError(f"no mount covers {path}")
    deepest = max(len(mount.point) for mount in covering)
    return [mount for mount in covering if len(mount.point) == deepest][-1]


def read_storage(path: Path, mountinfo: Path = Path("/proc/self/mountinfo"), sysfs: Path = Path("/sys")) -> Storage:
    """The storage of ``path``. For a path that does not exist yet, its nearest existing ancestor counts.

    Nothing is mounted inside it then: what is mounted below that ancestor is elsewhere.
    """
    there, whole, mounts = nearest(path).resolve(), path.resolve(), parse_mountinfo(mountinfo.read_text())
    below = [mount for mount in mounts if mount.point != str(whole) and Path(mount.point).is_relative_to(whole)]
    inside = (_storage(Path(mount.point), mount, mounts, sysfs) for mount in below if os.path.isdir(mount.point))
    own = _storage(there, mount_of(there, mounts), mounts, sysfs)
    return msgspec.structs.replace(own, path=str(path.absolute()), inside=tuple(inside))


def in_memory(storage: Storage) -> bool:
    """Whether what is written there stays in memory: on such a file system, or in a file on one."""
    return storage.kind == "memory" or any(in_memory(below) for below in storage.rests_on)


def _storage(path: Path, mount: Mount, mounts: tuple[Mount, ...], sysfs: Path) -> Storage:
    block = _block_device(mount, sysfs)
    space = os.statvfs(path)
    return Storage(
        path=str(path),
        mount_point=mount.point,
        filesystem=mount.filesystem,
        kind=_kind(mount, block),
        source=mount.source,
        device=block.name if block else None,
        options=mount.options,
        rotational=_rotational(block) if block else None,
        total_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
        rests_on=tuple(_below(block, mounts, sysfs)) if block else (),
    )


def _below(block: Path, mounts: tuple[Mount, ...], sysfs: Path) -> Iterator[Storage]:
    """What the file of a loop device lies on (Documentation/ABI/testing/sysfs-block-loop)."""
    file = kernel_text(block / "loop/backing_file")
    if file is None:
        return
    if os.path.exists(file) and not file.endswith(_DELETED):
        yield _storage(Path(file), mount_of(Path(file), mounts), mounts, sysfs)
    else:
        yield Storage(
            path=file,
            mount_point="",
            filesystem=UNKNOWN,
            kind="other",
            source="",
            device=None,
            options=(),
            rotational=None,
            total_bytes=0,
            free_bytes=0,
        )


def _parse_line(line: str) -> Mount:
    """Parse a line: fields before `` - ``, of varying number, describe the mount, those after it the file system."""
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
    """Undo the octal escapes of blank, tab, newline and backslash."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text


def _kind(mount: Mount, block: Path | None) -> StorageKind:
    name = mount.filesystem
    if name in MEMORY or (block is not None and _is_ram(block)):
        return "memory"
    if name in _NETWORK or name.startswith("fuse"):
        return "network"
    if name == "overlay":
        return "overlay"
    return "disk" if mount.source.startswith("/dev/") else "other"


def _is_ram(block: Path) -> bool:
    """Whether a block device is memory, or one of those that it is made of (device mapper, md)."""
    slaves = (block / "slaves").iterdir() if (block / "slaves").is_dir() else ()
    return block.name.startswith(_RAM_DISKS) or any(_is_ram(slave.resolve()) for slave in slaves)


def _block_device(mount: Mount, sysfs: Path) -> Path | None:
    """The device's folder in sysfs. For btrfs, which shows an anonymous number, the source's name decides."""
    by_number = sysfs / "dev/block" / mount.device_number
    by_name = sysfs / "class/block" / Path(mount.source).name
    if by_number.exists():
        return by_number.resolve()
    return by_name.resolve() if mount.source.startswith("/dev/") and by_name.exists() else None


def _rotational(block: Path) -> bool | None:
    """Whether the disk rotates; a partition has no queue, so its disk's counts."""
    text = kernel_text(block / "queue/rotational") or kernel_text(block.parent / "queue/rotational")
    return None if text is None else text == "1"
