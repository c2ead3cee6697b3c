"""I/O shares: the disk that is meant, what is refused, and that the kernel holds a real reader to its share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fence_waiting import process_of

from milabench_ng.fence import io
from milabench_ng.fence.backends import affinity, cgroup1, cgroup2, none, slurm
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.choosing import Backend, choose
from milabench_ng.fence.interface import Fence, IsolationMismatch
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import IoShare
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import IoEvidence, IoLimit, Share
from milabench_ng.run.execution.bandwidth import probe_all

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
        (V2, cgroup2, "io.max"),
        (V1, cgroup1, "blkio.throttle"),
        (NOTHING, cgroup1, None),
        (V1, affinity, None),
        (V1, none, "none"),
    ],
)
def test_what_limits_it(capabilities: Capabilities, backend: Backend, expected: str | None) -> None:
    assert io.method(capabilities, backend) == expected


@pytest.mark.parametrize(
    ("dataroot", "capabilities", "backend", "reason"),
    [
        ("/proc", V1, cgroup1, "blkio.throttle limits disks only, and the data root /proc lies on none"),
        ("/", NOTHING, cgroup1, "here: /sys/fs/cgroup/blkio is read-only. See mnb doctor"),
        ("/", V1, affinity, "isolation 'affinity' limits no I/O"),
        ("/", V1, slurm, "isolation 'slurm' limits no I/O"),
    ],
)
def test_what_the_kernel_cannot_hold_the_readers_do(
    dataroot: str, capabilities: Capabilities, backend: Backend, reason: str
) -> None:
    asked = io.ask(IoShare(read="2MiB/s"), "x.json", Path(dataroot), capabilities, backend)
    assert (asked.method, asked.device, asked.disk, asked.read_bytes_per_s) == ("readers", "", "", 2 * MIB)
    assert asked.reason is not None
    assert reason in asked.reason
    assert (io.limits(asked), io.reader_budget(asked)) == ((), 2 * MIB)
    with pytest.raises(InputError, match="for writes was requested, but only the kernel can enforce it"):
        io.ask(IoShare(read="2MiB/s", write="3MiB/s"), "x.json", Path(dataroot), capabilities, backend)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (IoShare(read="1KiB/s"), "io.read: expected at least 1 MiB/s, got '1KiB/s'"),
        (IoShare(write="fast"), "io.write: expected a bandwidth, got 'fast'"),
    ],
)
def test_what_is_no_share_is_refused(wanted: IoShare, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        io.ask(wanted, "x.json: test 't'", Path("/"), V1, cgroup1)
    assert str(caught.value).startswith("x.json: test 't': ")


def test_what_the_readers_had_is_told_and_checked() -> None:
    asked = IoEvidence(method="readers", device="", disk="", read_bytes_per_s=10 * MIB)
    seen = io.achieved(asked, 30 * MIB, 3.0)
    assert (seen.reader_bytes, seen.reader_bytes_per_s) == (30 * MIB, 10.0 * MIB)
    assert io.excess(seen) is None
    finding = io.excess(io.achieved(asked, 36 * MIB, 3.0))
    assert finding is not None
    assert finding.endswith("reads on the data root (readers), but the readers of the dataset had 12.0 MiB/s")
    kernel = IoEvidence(method="io.max", device="254:0", disk="vda", read_bytes_per_s=10 * MIB)
    assert io.achieved(kernel, 36 * MIB, 3.0) == kernel


def test_without_a_fence_nothing_is_limited() -> None:
    asked = io.ask(IoShare(read="10MiB/s"), "x.json", Path("/proc"), NOTHING, none)
    assert asked == IoEvidence(method="none", device="", disk="", read_bytes_per_s=10 * MIB)
    assert io.limits(asked) == io.limits(None) == ()


def test_a_probe_that_reads_more_than_a_tenth_too_much_is_a_finding() -> None:
    asked = IoEvidence(method="io.max", device="254:0", disk="vda", read_bytes_per_s=10 * MIB)
    assert io.limits(asked) == (IoLimit("254:0", 10 * MIB, None),)
    assert io.excess(asked) is None
    assert io.excess(msgspec.structs.replace(asked, probed_read_bytes_per_s=11.0 * MIB)) is None
    finding = io.excess(msgspec.structs.replace(asked, probed_read_bytes_per_s=11.5 * MIB))
    assert finding is not None
    assert finding.endswith("reads on vda (io.max), but a probe in the tenant's group had 11.5 MiB/s")


@pytest.mark.root
def test_reads_and_writes_stay_within_the_share(
    fence: Fence, make_share: Callable[..., Share], capabilities: Capabilities, tmp_path: Path
) -> None:
    """Both tenants at once; alone and unlimited, the same must be faster, or the test shows nothing.

    How near they come to it is the disk's and its other users' affair.
    """
    backend = choose(capabilities, "full")
    if io.method(capabilities, backend) is None or io.whole_disk(tmp_path) is None:
        pytest.skip(f"needs a kernel that limits I/O, and a disk below {tmp_path}")
    rates = IoShare(read="10 MiB/s", write="5 MiB/s")
    asked = io.ask(rates, "a test", tmp_path, capabilities, backend)
    share = msgspec.structs.replace(make_share(), io=io.limits(asked))
    groups = {("held", str(index)): fence.create(f"t{index}", share) for index in range(2)}
    free = {("free", "0"): fence.create("free", make_share())}
    [unlimited] = asyncio.run(probe_all(free, dict.fromkeys(free, asked), tmp_path)).values()
    if min(unlimited.probed_read_bytes_per_s or 0, unlimited.probed_write_bytes_per_s or 0) < 40 * MIB:
        pytest.skip("this disk is too slow to tell these limits from it")
    seen = asyncio.run(probe_all(groups, dict.fromkeys(groups, asked), tmp_path))
    assert groups["held", "0"].effective().io == io.limits(asked)
    for one in seen.values():
        assert 0 < (one.probed_read_bytes_per_s or 0) <= 1.1 * 10 * MIB
        assert 0 < (one.probed_write_bytes_per_s or 0) <= 1.1 * 5 * MIB
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
        group.verify(process_of(process.pid))  # type: ignore[attr-defined]
