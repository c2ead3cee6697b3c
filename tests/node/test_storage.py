"""What a folder lies on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milabench_ng.node.storage import mount_of, parse_mountinfo, read_storage

MOUNTS = """\
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard
25 27 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=10k
30 27 0:44 / /data rw master:5 propagate_from:2 - nfs4 server:/export rw,vers=4.2
31 30 0:45 / /data/my\\040disk ro - fuse.sshfs me@host: rw
32 27 0:46 / /data2 rw - overlay overlay rw,lowerdir=/a
33 27 254:1 /over / rw,noatime - xfs /dev/vda1 rw
"""


@pytest.mark.parametrize(
    ("path", "point", "filesystem"),
    [
        ("/data/sets", "/data", "nfs4"),
        ("/data2/sets", "/data2", "overlay"),
        ("/data/my disk/x", "/data/my disk", "fuse.sshfs"),
        ("/home", "/", "xfs"),
    ],
)
def test_the_deepest_and_last_mount_counts(path: str, point: str, filesystem: str) -> None:
    mount = mount_of(Path(path), parse_mountinfo(MOUNTS))
    assert (mount.point, mount.filesystem) == (point, filesystem)


def storage_kind(tmp_path: Path, filesystem: str, source: str) -> str:
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 254:1 / / rw - {filesystem} {source} rw,x=1\n")
    return read_storage(tmp_path, mountinfo=table, sysfs=tmp_path).kind


@pytest.mark.parametrize(
    ("filesystem", "source", "kind"),
    [
        ("ext4", "/dev/vda1", "disk"),
        ("zfs", "pool/home", "other"),
        ("tmpfs", "tmpfs", "memory"),
        ("lustre", "mgs:/fs", "network"),
        ("fuse.gcsfuse", "bucket", "network"),
        ("overlay", "overlay", "overlay"),
    ],
)
def test_kind(tmp_path: Path, filesystem: str, source: str, kind: str) -> None:
    assert storage_kind(tmp_path, filesystem, source) == kind


def test_a_partition_has_the_queue_of_its_disk(tmp_path: Path) -> None:
    partition = tmp_path / "devices/nvme0n1/nvme0n1p2"
    partition.mkdir(parents=True)
    (tmp_path / "devices/nvme0n1/queue").mkdir()
    (tmp_path / "devices/nvme0n1/queue/rotational").write_text("0\n")
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/259:2").symlink_to(partition)
    table = tmp_path / "mountinfo"
    table.write_text("1 0 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw,discard\n")
    storage = read_storage(tmp_path / "not/there/yet", mountinfo=table, sysfs=tmp_path)
    assert (storage.device, storage.rotational) == ("nvme0n1p2", False)
    assert storage.options == ("rw", "relatime", "discard")
    assert storage.path == str(tmp_path / "not/there/yet")


def test_this_machine(tmp_path: Path) -> None:
    storage = read_storage(tmp_path)
    space = os.statvfs(tmp_path)
    assert storage.total_bytes == space.f_blocks * space.f_frsize
    assert 0 < storage.free_bytes <= storage.total_bytes
    shared_memory = Path("/dev/shm")
    if shared_memory.is_dir():
        assert read_storage(shared_memory).kind == "memory"


def rooted(tmp_path: Path, lines: list[str]) -> Path:
    """A table of mounts, and an empty sysfs beside it."""
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"{line}\n" for line in lines))
    return table


def block(sysfs: Path, number: str, name: str) -> Path:
    made = sysfs / "devices" / name
    made.mkdir(parents=True)
    (sysfs / "dev/block" / number).symlink_to(made)
    return made


@pytest.mark.parametrize("name", ["ram0", "zram1"])
def test_a_disk_of_memory_is_memory(tmp_path: Path, name: str) -> None:
    table = rooted(tmp_path, [f"1 0 1:0 / / rw - ext4 /dev/{name} rw"])
    block(tmp_path / "sys", "1:0", name)
    assert read_storage(tmp_path, mountinfo=table, sysfs=tmp_path / "sys").kind == "memory"


def test_a_mapped_disk_of_memory_is_memory(tmp_path: Path) -> None:
    table = rooted(tmp_path, ["1 0 253:0 / / rw - ext4 /dev/mapper/data rw"])
    (block(tmp_path / "sys", "253:0", "dm-0") / "slaves").mkdir()
    (tmp_path / "sys/devices/dm-0/slaves/zram0").symlink_to(block(tmp_path / "sys", "1:0", "zram0"))
    assert read_storage(tmp_path, mountinfo=table, sysfs=tmp_path / "sys").kind == "memory"


def test_a_loop_device_rests_on_its_file(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm/disk.img").write_bytes(b"")
    mounts = ["1 0 7:0 / / rw - ext4 /dev/loop0 rw", f"2 1 0:5 / {tmp_path}/shm rw - tmpfs tmpfs rw"]
    table = rooted(tmp_path, mounts)
    (block(tmp_path / "sys", "7:0", "loop0") / "loop").mkdir()
    (tmp_path / "sys/devices/loop0/loop/backing_file").write_text(f"{tmp_path}/shm/disk.img\n")
    found = read_storage(tmp_path / "sys", mountinfo=table, sysfs=tmp_path / "sys")
    assert found.kind == "disk"
    assert [(one.path, one.kind) for one in found.rests_on] == [(f"{tmp_path}/shm/disk.img", "memory")]


@pytest.mark.parametrize("decoy", [False, True])
def test_a_file_that_was_deleted_lies_nobody_knows_where(tmp_path: Path, decoy: bool) -> None:
    table = rooted(tmp_path, ["1 0 7:0 / / rw - ext4 /dev/loop0 rw"])
    if decoy:
        (tmp_path / "disk.img (deleted)").write_bytes(b"")
    (block(tmp_path / "sys", "7:0", "loop0") / "loop").mkdir()
    (tmp_path / "sys/devices/loop0/loop/backing_file").write_text(f"{tmp_path}/disk.img (deleted)\n")
    (below,) = read_storage(tmp_path / "sys", mountinfo=table, sysfs=tmp_path / "sys").rests_on
    assert (below.path, below.filesystem, below.kind) == (f"{tmp_path}/disk.img (deleted)", "unknown", "other")


def test_what_is_mounted_inside_is_named(tmp_path: Path) -> None:
    (tmp_path / "data/imagenet").mkdir(parents=True)
    mounts = ["1 0 254:1 / / rw - ext4 /dev/vda1 rw", f"2 1 0:5 / {tmp_path}/data/imagenet rw - tmpfs tmpfs rw"]
    found = read_storage(tmp_path / "data", mountinfo=rooted(tmp_path, mounts), sysfs=tmp_path / "sys")
    assert [(one.path, one.kind) for one in found.inside] == [(f"{tmp_path}/data/imagenet", "memory")]
    outside = read_storage(tmp_path / "sys", mountinfo=tmp_path / "mountinfo", sysfs=tmp_path / "sys")
    assert outside.inside == ()
    future = read_storage(tmp_path / "data/future", mountinfo=tmp_path / "mountinfo", sysfs=tmp_path / "sys")
    assert (future.mount_point, future.inside) == ("/", ()), "what lies next to a folder that is still to be made"
