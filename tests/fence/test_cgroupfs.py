"""The file layer on a plain directory: what is read and the very bytes that are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.fence.kernel.cgroupfs import Group2, Memory1, Memory2, Pids2
from milabench_ng.node.cgroup_files import Limit, format_ids, parse_ids


def write(directory: Path, **files: str) -> None:
    """Dots are underscores twice, as in `memory__max`."""
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("text", "ids"), [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), ("5", (5,)), ("0-1,3-4\n", (0, 1, 3, 4))]
)
def test_lists_of_numbers(text: str, ids: tuple[int, ...]) -> None:
    assert parse_ids(text) == ids
    assert format_ids(ids) == text.strip()


def test_v2_limits(tmp_path: Path) -> None:
    write(tmp_path, memory__max="max\n", pids__max="40\n", memory__oom__group="0\n", cpuset__cpus="")
    group = Group2(tmp_path)
    assert (group.memory.max, group.pids.max, group.memory.oom_group, group.cpuset.cpus) == (None, 40, False, ())
    group.memory.max = 1 << 30
    group.pids.max = None
    group.memory.oom_group = True
    group.cpuset.cpus = (0, 1, 2, 9)
    written = [(tmp_path / name).read_text() for name in ("memory.max", "pids.max", "memory.oom.group", "cpuset.cpus")]
    assert written == ["1073741824", "max", "1", "0-2,9"]


def test_v2_counters(tmp_path: Path) -> None:
    write(
        tmp_path,
        memory__events="low 0\noom 2\noom_kill 3\n",
        pids__events="",
        io__stat="259:0 rbytes=4096 wbytes=0 rios=1\n8:0 rbytes=1 wbytes=2\n",
        io__pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n",
    )
    group = Group2(tmp_path)
    assert group.memory.events == {"low": 0, "oom": 2, "oom_kill": 3}
    assert group.pids.events == {}
    assert group.io.stat["259:0"]["rbytes"] == "4096"
    assert group.pressure.io["some"]["total"] == "1500000"


def test_io_limit_is_one_device_a_write(tmp_path: Path) -> None:
    write(tmp_path, io__max="")
    group = Group2(tmp_path)
    group.io.max = {"8:0": {"rbps": "10485760", "wbps": "max"}}
    assert (tmp_path / "io.max").read_text() == "8:0 rbps=10485760 wbps=max"
    with pytest.raises(ValueError, match="too many"):
        group.io.max = {"8:0": {"rbps": "1"}, "8:16": {"rbps": "1"}}


def test_one_pid_a_write(tmp_path: Path) -> None:
    write(tmp_path, cgroup__procs="12\n34\n")
    group = Group2(tmp_path)
    assert group.core.procs == (12, 34)
    group.core.procs = (56,)
    assert (tmp_path / "cgroup.procs").read_text() == "56"
    with pytest.raises(ValueError, match="too many"):
        group.core.procs = (1, 2)


def test_controllers_are_enabled_once(tmp_path: Path) -> None:
    write(tmp_path, cgroup__subtree_control="memory pids\n")
    assert Group2(tmp_path).enable(["memory", "cpuset"]) == ("cpuset",)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpuset"


def test_v1_no_limit_is_a_huge_number(tmp_path: Path) -> None:
    write(
        tmp_path, memory__limit_in_bytes="9223372036854771712\n", memory__oom_control="oom_kill_disable 0\noom_kill 1\n"
    )
    memory = Memory1(tmp_path)
    assert memory.limit is None
    memory.limit = None
    assert (tmp_path / "memory.limit_in_bytes").read_text() == "-1"
    assert memory.oom_control["oom_kill"] == 1
    write(tmp_path, memory__limit_in_bytes="9223372036854710272\n")  # with pages of 64 KiB
    assert memory.limit is None


def test_missing_and_read_only_files_raise(tmp_path: Path) -> None:
    group = Group2(tmp_path)
    assert not group.memory.has("memory.peak")
    with pytest.raises(FileNotFoundError):
        _ = group.memory.peak
    with pytest.raises(RuntimeError):
        group.memory.current = 1


def test_the_class_shows_its_descriptors() -> None:
    assert isinstance(Memory2.max, Limit)
    assert isinstance(Pids2.max, Limit)
