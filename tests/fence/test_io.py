"""I/O shares: the disk that is meant, what is refused, and that the kernel holds a real reader to its share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from milabench_ng.errors import InputError
from milabench_ng.fence import io
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.interface import Fence, IsolationMismatch
from milabench_ng.profile import IoShare
from milabench_ng.records.isolation import IoEvidence, IoLimit, Share
from milabench_ng.units import MIB

NOTHING = Capabilities("v1", "6.1", True, {"blkio": Controller(False, why="/sys/fs/cgroup/blkio is read-only")})
V1 = Capabilities("v1", "6.1", True, {"blkio": Controller(True)})
V2 = Capabilities("v2", "6.1", True, {"io": Controller(True)})


def sysfs_with(tmp_path: Path, path: Path, partition: bool) -> Path:
    """A sysfs in which the disk of `path` is vda, 254:0, or its partition vda1, 254:1."""
    disk = tmp_path / "sys/devices/vda"
    (disk / "vda1").mkdir(parents=True)
    (disk / "dev").write_text("254:0\n")
    (disk / "vda1/dev").write_text("254:1\n")
    (disk / "vda1/partition").write_text("1\n")
    number = path.stat().st_dev
    link = tmp_path / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(disk / "vda1" if partition else disk)
    return tmp_path / "sys"


@pytest.mark.parametrize("partition", [False, True])
def test_the_whole_disk_is_meant(tmp_path: Path, partition: bool) -> None:
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip(f"{tmp_path} lies on no disk")
    sysfs = sysfs_with(tmp_path, tmp_path, partition)
    assert io.whole_disk(tmp_path / "not" / "yet", sysfs) == io.Disk("254:0", "vda")


def test_a_memory_file_system_has_no_disk() -> None:
    assert io.whole_disk(Path("/proc/self")) is None


@pytest.mark.parametrize(
    ("capabilities", "backend", "expected"),
    [
        (V2, "cgroup2", "io.max"),
        (V1, "cgroup1", "blkio.throttle"),
        (NOTHING, "cgroup1", None),
        (V1, "affinity", None),
        (V1, "none", "none"),
    ],
)
def test_what_limits_it(capabilities: Capabilities, backend: str, expected: str | None) -> None:
    assert io.method(capabilities, backend) == expected


@pytest.mark.parametrize(
    ("wanted", "dataroot", "capabilities", "backend", "message"),
    [
        (IoShare(read="2MiB/s"), "/proc", V1, "cgroup1", "blkio.throttle limits disks only: the data root /proc lies"),
        (IoShare(write="2MiB/s"), "/", NOTHING, "cgroup1", "here: /sys/fs/cgroup/blkio is read-only. See mnb doctor"),
        (IoShare(read="2MiB/s"), "/", V1, "affinity", r"\(read 2.0 MiB/s\), and the fence 'affinity' limits no I/O"),
        (IoShare(read="1KiB/s"), "/", V1, "cgroup1", "io.read: '1KiB/s' is too little to work with"),
        (IoShare(write="fast"), "/", V1, "cgroup1", "io.write: 'fast' is not a bandwidth"),
    ],
)
def test_what_cannot_be_held_is_refused(
    wanted: IoShare, dataroot: str, capabilities: Capabilities, backend: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        io.ask(wanted, "x.json: test 't'", Path(dataroot), capabilities, backend)
    assert str(caught.value).startswith("x.json: test 't': ")


def test_without_a_fence_nothing_is_limited() -> None:
    asked = io.ask(IoShare(read="10MiB/s"), "x.json", Path("/proc"), NOTHING, "none")
    assert asked == IoEvidence(method="none", device="", disk="", read_bytes_per_s=10 * MIB)
    assert io.limits(asked) == io.limits(None) == ()


def test_a_probe_that_reads_more_than_a_tenth_too_much_is_a_finding() -> None:
    asked = IoEvidence(method="io.max", device="254:0", disk="vda", read_bytes_per_s=10 * MIB)
    assert io.limits(asked) == (IoLimit("254:0", 10 * MIB, None),)
    assert io.excess(asked) is None
    assert io.excess(msgspec.structs.replace(asked, probed_read_bytes_per_s=11.0 * MIB)) is None
    finding = io.excess(msgspec.structs.replace(asked, probed_read_bytes_per_s=11.5 * MIB))
    assert finding is not None
    assert finding.endswith("reads from vda (io.max), a probe in the tenant's group read 11.5 MiB/s")


@pytest.mark.root
def test_reads_stay_within_a_tenth_of_the_share(
    fence: Fence, make_share: Callable[..., Share], capabilities: Capabilities, tmp_path: Path
) -> None:
    """Both tenants at once; reading alone and unlimited, the same file must be faster, or the test shows nothing."""
    if io.method(capabilities, fence.backend) is None or io.whole_disk(tmp_path) is None:
        pytest.skip(f"needs a kernel that limits I/O, and a disk below {tmp_path}")
    asked = io.ask(IoShare(read="10 MiB/s"), "a test", tmp_path, capabilities, fence.backend)
    share = msgspec.structs.replace(make_share(), io=io.limits(asked))
    groups = [fence.create(f"t{index}", share) for index in range(2)]
    free = fence.create("free", make_share())
    with io.probe_file(tmp_path) as descriptor:
        unlimited = io.finish_probe(io.start_probe(free, 10 * MIB, descriptor), asked)
        if (unlimited.probed_read_bytes_per_s or 0) < 40 * MIB:
            pytest.skip("this disk is too slow to tell a limit of 10 MiB/s from it")
        started = [io.start_probe(group, 10 * MIB, descriptor) for group in groups]
        seen = [io.finish_probe(process, asked) for process in started]
    assert groups[0].effective().io == io.limits(asked)
    for one in seen:
        assert one.probed_read_bytes_per_s == pytest.approx(10 * MIB, rel=0.1)
        assert io.excess(one) is None
    assert io.excess(unlimited) is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_limit_that_the_kernel_lost_is_a_mismatch(
    fence: Fence, make_share: Callable[..., Share], start: Callable[..., object], tmp_path: Path
) -> None:
    disk = io.whole_disk(tmp_path)
    if disk is None:
        pytest.skip(f"{tmp_path} lies on no disk")
    group = fence.create("t0", make_share())
    group.share = msgspec.structs.replace(group.share, io=(IoLimit(disk.number, MIB, None),))
    process = start(group, "import sys; print('in', flush=True); sys.stdin.read()")
    process.stdout.readline()  # type: ignore[attr-defined]
    with pytest.raises(IsolationMismatch, match="kernel gives none"):
        group.verify(process.pid)  # type: ignore[attr-defined]
