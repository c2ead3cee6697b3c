"""Groups of resctrl, made, entered, read and removed by real processes in a file system that behaves as it does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from fake_resctrl import GROUPS, mounted
from fence_waiting import process_of, wait_for

from milabench_ng.fence.backends import cgroup1, cgroup2
from milabench_ng.fence.cache_groups import (
    CacheGroup,
    find_cache_groups,
    make_cache_group,
    reap_cache_groups,
    schemata,
)
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import open_fence
from milabench_ng.fence.interface import Fence, Group, IsolationMismatch
from milabench_ng.model.errors import IsolationError
from milabench_ng.records.isolation import CachePart, Effective, Share, Usage

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not Path("/dev/fuse").exists(), reason="needs /dev/fuse for a file system that behaves as resctrl"
    ),
]
PARTS = (CachePart(0, 0x1F, 50),)
REST = CachePart(1, 0x7FF)
"""What the kernel gives a new group of a cache that was not asked for."""
Start = Callable[[Group, str], "subprocess.Popen[str]"]


@pytest.fixture
def resctrl(tmp_path: Path) -> Iterator[Path]:
    """A mounted tree."""
    with mounted(tmp_path) as place:
        yield place


@pytest.fixture
def divided(resctrl: Path, monkeypatch: pytest.MonkeyPatch, make_share: Callable[[], Share]) -> Share:
    """A share with a part of a cache, whose group is made in that tree."""
    for backend in (cgroup1, cgroup2):
        monkeypatch.setattr(backend, "make_cache_group", partial(make_cache_group, resctrl=resctrl))
    return msgspec.structs.replace(make_share(), cache=PARTS)


def ours(resctrl: Path) -> list[str]:
    return [path.name for path in resctrl.iterdir() if path.name.startswith("mnb-")]


def test_only_the_caches_that_are_asked_for_are_named() -> None:
    assert schemata((CachePart(0, 0x1F, 50), CachePart(2, 0x3E0, 30))) == "L3:0=1f;2=3e0\nMB:0=50;2=30\n"
    assert schemata((CachePart(0, 0x1F),)) == "L3:0=1f\n"


def test_what_the_kernel_holds_is_read_back(resctrl: Path) -> None:
    group = CacheGroup(resctrl / "mnb-r-t0", PARTS)
    assert "L3:0=01f;1=7ff" in (resctrl / "mnb-r-t0/schemata").read_text()
    outside = group.held(Effective(pids=7), [os.getpid()])
    assert outside == Effective(pids=7, cache=(*PARTS, REST), in_cache_group=False)
    assert group.held(Effective(), [2**22]).in_cache_group, "a process that has ended is nowhere else"
    Path(group.tasks).write_text("0")
    assert group.held(Effective(), [os.getpid()]).in_cache_group
    assert group.remove()


def test_counters_are_added_up_over_the_caches(resctrl: Path) -> None:
    group = CacheGroup(resctrl / "mnb-r-t0", PARTS)
    counted = group.counted(Usage(memory_bytes=5))
    assert counted == Usage(memory_bytes=5, cache_bytes=2000, memory_traffic_bytes=140)
    assert group.remove()
    assert group.counted(Usage()) == Usage(), "what is not counted is left out"


@pytest.mark.parametrize(
    ("taken", "mask", "reason"),
    [(0, 0b101, "Invalid argument; the kernel says: The mask 5 has"), (GROUPS - 1, 1, "Out of CLOSIDs")],
)
def test_a_refusal_has_the_kernels_reason_and_leaves_nothing(resctrl: Path, taken: int, mask: int, reason: str) -> None:
    for number in range(taken):
        (resctrl / f"database-{number}").mkdir()
    with pytest.raises(IsolationError, match=reason):
        CacheGroup(resctrl / "mnb-r-t0", (CachePart(0, mask),))
    assert ours(resctrl) == []


def test_a_tenant_is_in_its_group_with_its_children(resctrl: Path, divided: Share, fence: Fence, start: Start) -> None:
    group = fence.create("t0", divided)
    process = start(group, "import os, sys; os.fork(); print('in', flush=True); sys.stdin.read()")
    wait_for(lambda: len(group.pids()) == 2)
    effective, _ = group.verify(process_of(process.pid))
    assert (effective.cache, effective.in_cache_group) == ((*PARTS, REST), True)
    assert group.usage().cache_bytes == 2000
    child = next(pid for pid in group.pids() if pid != process.pid)
    (resctrl / "tasks").write_text(str(child))
    assert group.effective().in_cache_group is False
    group.kill()
    wait_for(group.remove)
    assert ours(resctrl) == []


def test_other_parts_than_those_asked_for_stop_the_run(
    resctrl: Path, divided: Share, fence: Fence, start: Start
) -> None:
    group = fence.create("t0", divided)
    process = start(group, "import sys; print('in', flush=True); sys.stdin.read()")
    assert process.stdout
    assert process.stdout.readline() == "in\n"
    (resctrl / ours(resctrl)[0] / "schemata").write_text("L3:0=3f\n")
    with pytest.raises(IsolationMismatch, match=r"requested cache 0: 5 parts \(1f\).*kernel gives cache 0: 6 parts"):
        group.verify(process_of(process.pid))


def test_the_guardian_removes_what_is_left(resctrl: Path, divided: Share, capabilities: Capabilities) -> None:
    fence = open_fence(capabilities, "full", f"mnb-test-{os.urandom(4).hex()}", holds="CPUs of a test")
    fence.create("t0", divided)
    assert len(ours(resctrl)) == 1
    fence.close()
    assert ours(resctrl) == []


def test_groups_of_dead_runs_are_removed_and_no_others(resctrl: Path) -> None:
    living = CacheGroup(resctrl / "mnb-living-t0", PARTS)
    for name in ("mnb-dead-t0", "database"):
        (resctrl / name).mkdir()
    dead = str(resctrl / "mnb-dead-t0")
    assert find_cache_groups(resctrl) == {dead: False, str(resctrl / "mnb-living-t0"): True}
    assert reap_cache_groups(resctrl) == [f"isolation: removed {dead}, left by a dead run."]
    assert ours(resctrl) == ["mnb-living-t0"]
    assert (resctrl / "database").is_dir()
    assert living.remove()


def test_where_resctrl_is_not_mounted_there_are_none(tmp_path: Path) -> None:
    assert (find_cache_groups(tmp_path), reap_cache_groups(tmp_path)) == ({}, [])
