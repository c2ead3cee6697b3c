"""Pure v2 as root without systemd: what the machines of developers do not have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng.fence.choosing import bounds, open_fence
from milabench_ng.fence.interface import Fence, Group, IsolationMismatch
from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.processes import identify
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.sharing.shares import Placement, Policy, allocate
from milabench_ng.model.units import MIB
from milabench_ng.node.topology import read_topology
from milabench_ng.records.isolation import Share

TELL = (
    "from milabench_ng.fence.probing.probe import probe; import msgspec; print(msgspec.json.encode(probe()).decode())"
)
MEMORY = 128 * MIB


def told(*wrapper: str) -> dict[str, object]:
    """What a probe finds when it is run inside of these commands."""
    command = [*wrapper, sys.executable, "-c", TELL]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture
def fence() -> Iterator[Fence]:
    fence = open_fence(probe(), "full", "checked")
    yield fence
    fence.close()


@pytest.fixture
def start() -> Iterator[Callable[[Group, str], subprocess.Popen[str]]]:
    """Start Python source in a group; it is inside when its first line is there."""
    started = []

    def run(group: Group, source: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-I", "-S", "-c", f"print('in', flush=True)\n{source}"]
        process = subprocess.Popen(group.entry.command(argv), stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def share(*cpus: int) -> Share:
    return Share(cpus, (0, 1), MEMORY, MEMORY, 50, cores=1)


def test_siblings_stay_together_and_tenants_on_their_node() -> None:
    topology = read_topology()
    placements = [Placement(str(i), node) for i, node in enumerate((0, 0, 1, 1))]
    made = allocate(topology, placements, bounds(probe(), "full"), Policy(ram_total_bytes=64 << 30))
    assert [one.cpus for one in made.shares.values()] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [one.local for one in made.shares.values()] == [1.0] * 4


def test_cpus_that_are_offline_are_left_out_of_the_shares() -> None:
    switch = Path("/sys/devices/system/cpu/cpu7/online")
    switch.write_text("0")
    try:
        placements = [Placement(str(i), -1) for i in range(3)]
        made = allocate(read_topology(), placements, bounds(probe(), "full"), Policy(ram_total_bytes=64 << 30))
        assert all(7 not in one.cpus for one in made.shares.values())
        assert len({len(one.cpus) for one in made.shares.values()}) == 1
    finally:
        switch.write_text("1")


def test_cpus_that_go_offline_widen_the_share_and_are_noticed(
    fence: Fence, start: Callable[[Group, str], subprocess.Popen[str]]
) -> None:
    group = fence.create("t0", share(7))
    process = start(group, "import time; time.sleep(600)")
    running = identify(process.pid)
    assert running
    group.verify(running)
    switch = Path("/sys/devices/system/cpu/cpu7/online")
    switch.write_text("0")
    try:
        assert group.effective().cpus == (0, 1, 2, 3, 4, 5, 6)
        with pytest.raises(IsolationMismatch, match="requested CPUs 7, but the kernel gives 0-6"):
            group.verify(running)
    finally:
        switch.write_text("1")


def test_with_swap_a_tenant_above_its_share_dies_only_because_swap_is_forbidden(
    fence: Fence, start: Callable[[Group, str], subprocess.Popen[str]]
) -> None:
    file = "/swapfile"
    subprocess.run(["fallocate", "-l", "256M", file], check=True)
    os.chmod(file, 0o600)
    subprocess.run(["mkswap", "-q", file], check=True)
    subprocess.run(["swapon", file], check=True)
    try:
        greedy = f"x = b'x' * {3 * MEMORY // 2}"
        fenced, loose = fence.create("t0", share(2)), fence.create("t1", share(4))
        assert fenced.effective().swap_bytes == 0
        assert start(fenced, greedy).wait() == -9
        assert fenced.events().oom_kill > 0
        Group2(Path(fence.parent, "mnb", "checked", "t1")).memory.swap_max = None
        assert start(loose, greedy).wait() == 0
        assert loose.events().oom_kill == 0
    finally:
        subprocess.run(["swapoff", file], check=True)
        os.unlink(file)


def test_a_read_only_mount_is_named() -> None:
    found = told("unshare", "-m", "sh", "-c", 'mount -o remount,bind,ro /sys/fs/cgroup && exec "$@"', "sh")
    assert found["messages"]
    assert str(found["messages"][0]).startswith("isolation: /sys/fs/cgroup is mounted read-only (container).")


def test_a_group_outside_of_the_namespace_is_named(tmp_path: Path) -> None:
    group = Path("/sys/fs/cgroup/mnb-test-elsewhere")
    inner = group / "inner"
    inner.mkdir(parents=True)
    enter = f"echo 0 >{inner}/cgroup.procs && exec unshare -C sh -c '"
    leave = f"echo 0 >{group}/cgroup.procs"
    script = f'{enter}{leave} && mount -t cgroup2 none {tmp_path} && umount -l /sys/fs/cgroup && exec "$@"\' sh "$@"'
    try:
        found = told("unshare", "-m", "sh", "-c", script, "sh")
    finally:
        inner.rmdir()
        group.rmdir()
    assert any("is in cgroup /.." in one and "private cgroup namespace" in one for one in found["messages"])


def test_a_user_to_whom_nothing_is_delegated_gets_affinity() -> None:
    found = told("setpriv", "--reuid=alice", "--regid=alice", "--clear-groups", "env", "-u", "XDG_RUNTIME_DIR")
    assert not any(controller["ok"] for controller in found["controllers"].values())
    assert str(found["messages"][0]).startswith(
        "isolation: no write permission on /sys/fs/cgroup; no systemd user session (XDG_RUNTIME_DIR unset or no bus)."
    )
