"""CPU quotas above the tenants: real ones on whatever has the cpu controller here, and the files of v2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence_waiting import wait_for

from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.mounts import find, parse_mountinfo
from milabench_ng.fence.kernel.quotas import cpu_limits
from milabench_ng.fence.killing import OwnGroup, sweep
from milabench_ng.records.surroundings import CpuLimit, tightest

TELL = """
from milabench_ng.model.errors import IsolationError
from milabench_ng.fence.choosing import choose
from milabench_ng.fence.probing.probe import probe
found = probe({parent!r})
print(found.tier, found.quota and found.quota.cpus)
try:
    print(choose(found, "full").NAME)
except IsolationError as error:
    print(error)
"""
SPIN = "while True: pass"


def set_quota(group: Path, cpus: float) -> None:
    """Give everything in a group so much CPU time, in periods of 20 ms."""
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{int(cpus * 20_000)} 20000")
    else:
        (group / "cpu.cfs_period_us").write_text("20000")
        (group / "cpu.cfs_quota_us").write_text(str(int(cpus * 20_000)))


@pytest.fixture
def pod() -> Iterator[Path]:
    """A group in the hierarchy of the cpu controller with half a CPU, as a container's; in it `below`, without."""
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    mount = find(mounts, "cpu") or find(mounts, "")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root and a cpu controller")
    top = Path(mount.point)
    enabled = Group2(top).enable(["cpu", "cpuset", "memory", "pids"]) if mount.version == 2 else ()
    pod = top / f"mnb-test-{os.urandom(4).hex()}"
    (pod / "below").mkdir(parents=True)
    set_quota(pod, 0.5)
    yield pod
    sweep([OwnGroup.noted(str(pod))], patience_s=5.0)
    if mount.version == 2:
        Group2(top).disable(enabled)


def inside(group: Path, source: str) -> subprocess.Popen[str]:
    """Python source in a group."""
    enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"
    return subprocess.Popen([sys.executable, "-c", enter + source], stdout=subprocess.PIPE, text=True)


@pytest.mark.root
def test_a_quota_above_is_no_full_isolation(pod: Path) -> None:
    on_v2 = (pod / "cpu.max").exists()  # where tenants have groups of their own, whatever group mnb is in
    said = inside(pod / "below", TELL.format(parent=pod.name if on_v2 else None)).communicate()[0]
    assert said.startswith("partial 0.5\n")
    assert f"{pod} has a CPU quota of 0.5 CPUs, and the tenants would divide {os.cpu_count()}" in said
    assert "Asked for --isolation full, but this node offers partial." in said


@pytest.mark.root
def test_a_container_sees_the_quota_of_its_own_group(pod: Path) -> None:
    """In a cgroup namespace with the hierarchy mounted anew, the group is the root of all that can be seen."""
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    mount = find(mounts, "cpu") or find(mounts, "")
    assert mount
    kind = "-t cgroup2" if mount.version == 2 else f"-t cgroup -o {','.join(mount.controllers)}"
    anew = f'umount -l {mount.point} && mount {kind} cgroup {mount.point} && exec "$0" -c "$1"'
    argv = ["unshare", "--cgroup", "--mount", "sh", "-c", anew, sys.executable, TELL.format(parent=None)]
    said = inside(pod, f"import os; os.execvp('unshare', {argv!r})").communicate()[0]
    assert said.startswith("partial 0.5\n")
    assert f"{mount.point} has a CPU quota of 0.5 CPUs" in said


@pytest.mark.root
def test_what_a_quota_held_back_shows_below_it_too(pod: Path) -> None:
    """As in a cgroup namespace, whose root is below the group with the quota."""
    set_quota(pod, 0.05)  # less than it gets beside any other load
    spinning = inside(pod / "below", SPIN)
    try:
        below, above = pod / "below", pod
        assert wait_for(lambda: (cpu_limits(above)[0].throttled or 0) > 5, 20)
        seen = cpu_limits(below)
        assert [limit.cpus for limit in seen[:2]] == [None, 0.05]
        assert (seen[0].weight, seen[1].weight) == (1.0, 1.0)
        if seen[0].held_back_s is None:
            pytest.skip("this kernel has no cpu.stat.local (Linux 6.6)")
        assert wait_for(lambda: (cpu_limits(below)[0].held_back_s or 0.0) > 0.01, 20)
    finally:
        spinning.kill()
        spinning.communicate()


def test_the_files_of_v2(tmp_path: Path) -> None:
    files = {
        "cgroup.procs": "",
        "cpu.max": "150000 100000\n",
        "cpu.weight": "50\n",
        "cpu.stat": "usage_usec 12\nnr_periods 9\nnr_throttled 4\nthrottled_usec 7\n",
        "cpu.stat.local": "throttled_usec 2500000\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    group = tmp_path / "idle"
    group.mkdir()
    for name, text in {"cgroup.procs": "", "cpu.max": "max 100000\n", "cpu.idle": "1\n"}.items():
        (group / name).write_text(text)
    limit = CpuLimit(group=str(tmp_path), cpus=1.5, weight=0.5, periods=9, throttled=4, held_back_s=2.5)
    assert cpu_limits(group) == (CpuLimit(group=str(group), weight=0.0), limit)
    assert tightest(cpu_limits(group), 2) == limit
    assert tightest(cpu_limits(group), 1) is None
