"""Back end `cgroup2` without a v2 node: its limits on a plain directory, its processes in a bare v2 hierarchy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence.backends import cgroup2
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.mounts import find, parse_mountinfo
from milabench_ng.fence.killing import OwnGroup, sweep
from milabench_ng.records.isolation import Effective, GroupEvents, IoLimit, MemoryLimit, Share

GIB = 1 << 30
FILES = {
    "cgroup.procs": "",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "cpuset.cpus.effective": "4-7",
    "cpuset.mems.effective": "0",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.events": "low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 1",
    "memory.current": "7",
    "memory.peak": "9",
    "memory.stat": "anon 4\nfile 3\nshmem 1",
    "pids.max": "max",
    "pids.current": "2",
    "pids.events": "max 5",
    "cpu.stat": "usage_usec 12\nuser_usec 8\nsystem_usec 4\nnr_throttled 0\nthrottled_usec 0",
    "io.max": "",
    "io.stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0",
    "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=0.00 total=1000000",
}


@pytest.fixture
def group(tmp_path: Path) -> cgroup2.Cgroup2Group:
    above = tmp_path / "run"
    above.mkdir()
    (above / "cgroup.procs").touch()
    (above / "memory.max").write_text(f"{8 * GIB}\n")
    node = above / "t0"
    node.mkdir()
    for name, text in FILES.items():
        (node / name).write_text(text and f"{text}\n")
    share = Share((4, 5, 6, 7), (0,), GIB, GIB, 4096, 4, io=(IoLimit("8:0", read_bytes_per_s=1000),))
    held = frozenset({"cpuset", "memory", "pids", "io"})
    return cgroup2.Cgroup2Group("t0", share, Group2(node), "/mnb/r/t0", held, shm=True)


def test_limits_are_written(group: cgroup2.Cgroup2Group, tmp_path: Path) -> None:
    names = ("cpuset.cpus", "cpuset.mems", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "io.max")
    written = [(tmp_path / "run/t0" / name).read_text() for name in names]
    assert written == ["4-7", "0", str(GIB), "0", "1", "4096", "8:0 rbps=1000 wbps=max"]
    assert group.entry.procs == (f"{tmp_path}/run/t0/cgroup.procs",)
    assert (group.entry.cpus, group.entry.shm_bytes) == ((4, 5, 6, 7), GIB)


def test_limits_events_and_usage_are_read(group: cgroup2.Cgroup2Group, tmp_path: Path) -> None:
    assert group.effective() == Effective(
        cpus=(4, 5, 6, 7),
        mems=(0,),
        memory_bytes=GIB,
        swap_bytes=0,
        oom_group=True,
        pids=4096,
        io=(IoLimit("8:0", 1000, None),),
        ancestors=(MemoryLimit(f"{tmp_path}/run", 8 * GIB),),
    )
    events = group.events()
    assert events == GroupEvents(3, 1, 1, 5), (
        "the group counts its own kills, so those elsewhere on the node say nothing"
    )
    usage = group.usage()
    assert (usage.cpu_usec, usage.memory_peak_bytes, usage.anon_shmem_max_bytes, usage.page_cache_bytes) == (
        12,
        9,
        5,
        2,
    )
    assert (usage.io_read_bytes, usage.io_write_bytes, usage.pids_peak) == (10, 20, 2)
    assert (usage.pressure["cpu"].some_s, usage.pressure["cpu"].full_s) == (2.0, 1.0)


def test_watching_keeps_what_has_no_maximum_in_the_kernel(group: cgroup2.Cgroup2Group, tmp_path: Path) -> None:
    node = tmp_path / "run/t0"
    for stat, pids in (("anon 40\nfile 60\nshmem 10\n", "9\n"), ("anon 1\nfile 5\nshmem 0\n", "2\n")):
        (node / "memory.stat").write_text(stat)
        (node / "pids.current").write_text(pids)
        group.watch()
    usage = group.usage()
    assert (usage.anon_bytes, usage.shmem_bytes, usage.page_cache_bytes) == (40, 10, 50)
    assert (usage.anon_shmem_max_bytes, usage.page_cache_max_bytes, usage.pids_peak) == (50, 50, 9)
    # The kernel's own maximum and what only grows are read at the end.
    assert (usage.memory_peak_bytes, usage.cpu_usec, usage.io_read_bytes) == (9, 12, 10)


def test_without_a_peak_in_the_kernel_memory_is_watched(group: cgroup2.Cgroup2Group, tmp_path: Path) -> None:
    node = tmp_path / "run/t0"
    (node / "memory.peak").unlink()
    older = cgroup2.Cgroup2Group("t0", group.share, Group2(node), "", frozenset({"memory"}), shm=False)
    for current in ("7\n", "70\n", "8\n"):
        (node / "memory.current").write_text(current)
        older.watch()
    usage = older.usage()
    assert (usage.memory_peak_bytes, usage.memory_bytes) == (70, 8)


def test_killing_does_not_look_like_a_changed_limit(group: cgroup2.Cgroup2Group, tmp_path: Path) -> None:
    before = group.effective()
    group.kill()
    assert (tmp_path / "run/t0/pids.max").read_text() == "0"
    assert group.effective() == before


def test_bounds_take_the_tightest_ancestor() -> None:
    limits = (MemoryLimit("/a/b", None), MemoryLimit("/a", 4 * GIB), MemoryLimit("/", 9 * GIB))
    found = cgroup2.least_memory((0, 1), (0,), limits)
    assert (found.memory_bytes, found.memory_group) == (4 * GIB, "/a")


@pytest.fixture
def bare() -> Iterator[Capabilities]:
    """A v2 hierarchy of which no controller of ours is used, as there is one on hybrid nodes too."""
    mount = find(parse_mountinfo(Path("/proc/self/mountinfo").read_text()), "")
    if mount is None or os.geteuid() != 0:
        pytest.skip("needs root and a mounted cgroup v2 hierarchy")
    parent = Path(mount.point, f"mnb-test-{os.getpid()}-bare")
    parent.mkdir()
    yield Capabilities("v2", "", True, {"cpu": Controller(True, "v2", str(parent))})
    sweep([OwnGroup.noted(str(parent))], patience_s=5.0)


@pytest.mark.root
def test_processes_in_a_real_v2_group(bare: Capabilities, start: Callable[..., subprocess.Popen[str]]) -> None:
    fence = cgroup2.open_fence(bare, "mnb-test-v2", "", shm=False)
    cpu = min(os.sched_getaffinity(0))
    group = fence.create("t0", Share((cpu,), (0,), GIB, GIB, 100, 1))
    process = start(group, "import os, time; os.fork() or (os.setsid(), os.fork()); time.sleep(60)")
    assert wait_for(lambda: len(group.pids()) == 3)
    effective, proc = group.verify(process_of(process.pid))
    assert (effective.cpus, effective.memory_bytes) == (None, None)
    assert proc.cpus_allowed == (cpu,)
    assert (group.usage().cpu_usec or 0) > 0
    with pytest.raises(IsolationMismatch, match="is in group"):
        group.verify(process_of(os.getpid()))
    group.kill()
    assert process.wait() == -9
    fence.close()
    assert not list(Path(bare.parents[0]).glob("*/"))
