"""Where cgroups are, from captured tables of three kinds of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.fence.backends.cgroup1 import group_names
from milabench_ng.fence.isolation_check import check
from milabench_ng.fence.kernel.mounts import (
    CgroupMount,
    find,
    mode_of,
    parse_disabled,
    parse_mountinfo,
    parse_own_groups,
)
from milabench_ng.fence.kernel.whereabouts import controlled
from milabench_ng.records.isolation import Effective, ProcView, Share

DATA = Path(__file__).parent / "data"


def mountinfo(name: str) -> str:
    """A captured /proc/mounts in the form of mountinfo."""
    lines = []
    for number, line in enumerate((DATA / name).read_text().splitlines(), 30):
        source, point, kind, options, _, _ = line.split()
        lines.append(f"{number} 23 0:{number} / {point} rw,nosuid shared:9 - {kind} {source} {options}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "v2_controllers", "mode"),
    [
        ("v2.txt", ("cpuset", "cpu", "io", "memory", "pids"), "v2"),
        ("hybrid.txt", (), "hybrid"),
        ("hybrid.txt", ("memory",), "mixed"),
        ("legacy.txt", (), "v1"),
    ],
)
def test_modes(name: str, v2_controllers: tuple[str, ...], mode: str) -> None:
    assert mode_of(parse_mountinfo(mountinfo(name)), v2_controllers) == mode
    assert mode_of((), ()) == "none"


def test_mount_points() -> None:
    hybrid = parse_mountinfo(mountinfo("hybrid.txt"))
    memory, unified, cpuacct = find(hybrid, "memory"), find(hybrid, ""), find(hybrid, "cpuacct")
    assert memory is not None
    assert memory.point == "/sys/fs/cgroup/memory"
    assert unified is not None
    assert unified.point == "/sys/fs/cgroup/unified"
    assert cpuacct is not None
    assert cpuacct.controllers == ("cpu", "cpuacct")
    assert find(parse_mountinfo(mountinfo("legacy.txt")), "") is None


def test_read_only_and_octal() -> None:
    text = "31 23 0:28 /docker/a /mnt/with\\040blank ro,nosuid - cgroup cgroup rw,memory"
    [mount] = parse_mountinfo(text)
    assert mount == CgroupMount("/mnt/with blank", "/docker/a", 1, ("memory",), read_only=True)
    writable = "32 23 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory"
    found = find(parse_mountinfo(f"{text}\n{writable}"), "memory")
    assert found is not None
    assert found.point == "/sys/fs/cgroup/memory"


def test_own_groups() -> None:
    own = parse_own_groups("4:cpu,cpuacct:/a\n3:memory:/x:y\n1:name=systemd:/s\n0::/user.slice\n")
    assert own == {"cpu": "/a", "cpuacct": "/a", "memory": "/x:y", "name=systemd": "/s", "": "/user.slice"}


def test_groups_and_directories() -> None:
    part = CgroupMount("/sys/fs/cgroup", "/docker/a", 2)
    assert part.directory("/docker/a/b") == Path("/sys/fs/cgroup/b")
    assert part.directory("/docker") is None
    assert part.directory("/../other") is None
    assert part.group(Path("/sys/fs/cgroup/mnb/r")) == "/docker/a/mnb/r"


def test_disabled_controllers() -> None:
    text = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\nmemory\t0\t1\t0\n"
    assert parse_disabled(text) == {"memory"}


def test_a_tenant_enters_all_controllers_that_are_mounted_together() -> None:
    """As systemd mounts them: a group for `cpuacct` takes the tenant out of its parent's group of `cpu`."""
    own = "6:cpuset:/\n5:memory:/user.slice\n3:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice\n0::/user.slice\n"
    inside = ("6:cpuset:/mnb/r/t0", "5:memory:/mnb/r/t0", "3:cpu,cpuacct:/mnb/r/t0", "0::/mnb/r/t0")
    points = {name: f"/sys/fs/cgroup/{name}" for name in ("cpuset", "memory", "unified")}
    points["cpuacct"] = "/sys/fs/cgroup/cpu,cpuacct"
    directories = {name: Path(point, "mnb/r/t0") for name, point in points.items()}
    names = group_names(parse_mountinfo(mountinfo("hybrid.txt")), directories)
    assert names == dict.fromkeys(("cpuset", "memory", "cpu", "cpuacct", ""), "/mnb/r/t0")
    share = Share((0,), (0,), 1 << 30, 1 << 30, 100, cores=1)
    proc = ProcView(pid=1, groups=inside, cpus_allowed=(0,), mems_allowed=(0,), threads=1, open_fds={})
    check("t0", share, Effective(), proc, {**controlled(parse_own_groups(own)), **names})
