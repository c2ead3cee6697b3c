"""A tenant that runs as root and wants to leave: it has not got the means, and if it had, it is found."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence.interface import Fence, FenceEntry, Group, IsolationMismatch
from milabench_ng.fence.kernel.holds import Holds, Writes
from milabench_ng.fence.kernel.mounts import find, parse_mountinfo, parse_own_groups
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.whereabouts import outside
from milabench_ng.records.isolation import Share

pytestmark = pytest.mark.root
Start = Callable[..., "subprocess.Popen[str]"]
MakeShare = Callable[..., Share]
HOLD = "import sys; print('in', flush=True); sys.stdin.read()"
DAEMON = """
import os, time
if not os.fork():
    os.setsid()
    os.fork() or time.sleep(3600)
    os._exit(0)
os.wait()
"""
LEAVE = """
import os, sys
for path in sys.argv[1:]:
    try: open(path, 'w').write('0')
    except OSError as error: print(error.strerror, end=' ')
try: os.sched_setaffinity(0, range(os.cpu_count()))
except OSError as error: print(error.strerror, end=' ')
print('tried', flush=True)
sys.stdin.read()
"""
THREAD_LEAVES = """
import os, sys, threading
def leave():
    for path in sys.argv[1:]:
        try: open(path, 'w').write(str(threading.get_native_id()))
        except OSError as error: print(error.strerror, end=' ')
    print('tried', flush=True)
    threading.Event().wait()
threading.Thread(target=leave, daemon=True).start()
sys.stdin.read()
"""


def above(group: Group, name: str) -> list[str]:
    """The same file in the parents of the run's groups."""
    return [str(Path(path).parent.parent.parent / name) for path in group.entry.procs]


def begin(group: Group, source: str, arguments: list[str], confined: bool) -> subprocess.Popen[str]:
    """Python source in a group, which gives up the means to leave or not."""
    entry = msgspec.structs.replace(group.entry, confined=confined)
    command = entry.command([sys.executable, "-I", "-S", "-c", source, *arguments])
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_root_in_a_tenant_cannot_leave(fence: Fence, make_share: MakeShare) -> None:
    group = fence.create("t0", make_share())
    process = begin(group, LEAVE, above(group, "cgroup.procs"), confined=True)
    try:
        said = first_line(process)
        assert said.count("Read-only file system") == len(group.entry.procs)
        assert group.outside(process.pid) == ""
        assert group.pids() == (process.pid,)
    finally:
        end(process)


def test_one_that_has_the_means_and_leaves_is_found(fence: Fence, make_share: MakeShare) -> None:
    group = fence.create("t0", make_share())
    process = begin(group, LEAVE, above(group, "cgroup.procs"), confined=False)
    try:
        assert first_line(process) == "tried"
        assert re.match(
            rf"python3?\S* \({process.pid}\) is in group /mnb-test-\S* of .* and not in", group.outside(process.pid)
        )
    finally:
        end(process)


def test_one_whose_affinity_alone_is_wider_is_found() -> None:
    if os.cpu_count() == 1:
        pytest.skip("needs two CPUs")
    assert "may run on CPUs" in outside(os.getpid(), {}, {min(os.sched_getaffinity(0))})
    assert outside(os.getpid(), {}, range(os.cpu_count() or 1)) == ""


def test_a_thread_that_leaves_is_found(fence: Fence, make_share: MakeShare) -> None:
    """Only v1 moves single threads between groups that have processes."""
    group = fence.create("t0", make_share())
    tasks = [path for path in above(group, "tasks") if os.path.exists(path)]
    if not tasks:
        pytest.skip("cgroup v2")
    process = begin(group, THREAD_LEAVES, tasks, confined=False)
    try:
        assert first_line(process) == "tried"
        found = group.outside(process.pid)
        assert "and not in" in found
        assert f"({process.pid})" not in found
    finally:
        end(process)


def test_one_that_was_moved_where_the_fence_has_no_groups_is_found(fence: Fence, make_share: MakeShare) -> None:
    mount = find(parse_mountinfo(Path("/proc/self/mountinfo").read_text()), "cpu")
    if mount is None:
        pytest.skip("needs the cpu controller of cgroup v1")
    group = fence.create("t0", make_share())
    process = begin(group, HOLD, [], confined=True)
    slow = Path(mount.point, f"mnb-test-{os.getpid()}")
    slow.mkdir()
    try:
        assert first_line(process) == "in"
        group.verify(process_of(process.pid))
        (slow / "cgroup.procs").write_text(str(process.pid))
        with pytest.raises(IsolationMismatch, match=rf"is in group /{slow.name} of cpu and not in /"):
            group.verify(process_of(process.pid))
    finally:
        end(process)
        assert wait_for(lambda: not (slow / "cgroup.procs").read_text())
        slow.rmdir()


def test_a_change_of_limits_is_heard_and_told(fence: Fence, make_share: MakeShare) -> None:
    """Of the groups that a process is in, and of all above, in all hierarchies; what is written again is nothing."""
    group = fence.create("t0", make_share())
    process = begin(group, HOLD, [], confined=True)
    try:
        assert first_line(process) == "in"
        holds = Holds(parse_own_groups(Path(f"/proc/{process.pid}/cgroup").read_text()))
        with contextlib.closing(Writes()) as writes:
            holds.follow(writes)
            assert not select.select([writes.descriptor], [], [], 0)[0]
            limits = [Path(place).parent / "cpuset.cpus" for place in group.entry.procs]
            (place,) = (path for path in limits if path.exists())
            place.write_text(place.read_text())
            assert select.select([writes.descriptor], [], [], 20)[0]
            writes.clear()
            assert not select.select([writes.descriptor], [], [], 0)[0]
        assert holds.changes() == ()
        frozen = next(path for path in map(Path, group.entry.procs) if (path.parent / "cgroup.freeze").exists())
        (frozen.parent / "cgroup.freeze").write_text("1")
        assert holds.changes() == (f"{frozen.parent}/cgroup.freeze was 0 and became 1",)
        (frozen.parent / "cgroup.freeze").write_text("0")
    finally:
        end(process)


def test_what_it_has_given_up_is_read_from_the_kernel(fence: Fence, make_share: MakeShare) -> None:
    group = fence.create("t0", make_share())
    process = begin(group, HOLD, [], confined=True)
    try:
        assert first_line(process) == "in"
        confinement = group.verify(process_of(process.pid))[1].confinement
        assert confinement
        assert confinement.cgroup_namespace
        assert confinement.groups_read_only
        assert confinement.ipc_namespace
        assert confinement.no_new_privs
        kept = {"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "MKNOD"}
        assert set(confinement.capabilities) <= kept
    finally:
        end(process)
    own = read_process(os.getpid()).confinement
    assert own
    assert not own.cgroup_namespace
    assert not own.ipc_namespace


def test_it_still_reads_the_files_of_other_users(
    fence: Fence, make_share: MakeShare, start: Start, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.write_text("data of a user")
    private.chmod(0o600)
    os.chown(private, 65534, 65534)
    process = start(fence.create("t0", make_share()), f"print(open({str(private)!r}).read())")
    assert process.communicate()[0] == "data of a user\n"


def test_a_system_v_segment_ends_with_the_tenant(fence: Fence, make_share: MakeShare) -> None:
    key = int.from_bytes(os.urandom(3), "big") + 1
    source = f"import ctypes; print(ctypes.CDLL(None).shmget({key}, 4096, 0o1600) >= 0, flush=True)"
    process = begin(fence.create("t0", make_share()), source, [], confined=True)
    assert first_line(process) == "True"
    end(process)
    assert ctypes.CDLL(None).shmget(key, 4096, 0) == -1


def test_a_daemon_stays_a_descendant(fence: Fence, make_share: MakeShare) -> None:
    """However often it forks: the process that entered adopts it."""
    group = fence.create("t0", make_share())
    process = begin(group, f"{DAEMON}{HOLD}", [], confined=True)
    try:
        assert first_line(process) == "in"
        assert wait_for(lambda: len(group.pids()) == 2)
        daemon = max(set(group.pids()) - {process.pid})
        assert f"PPid:\t{process.pid}\n" in Path(f"/proc/{daemon}/status").read_text()
    finally:
        group.remove()
        end(process)


def test_one_without_the_right_to_give_up_enters_all_the_same_and_it_shows() -> None:
    """As in a container without CAP_SYS_ADMIN."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (util-linux)")
    inner = FenceEntry(confined=True).command([sys.executable, "-I", "-S", "-c", HOLD])
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *inner]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first_line(process) == "in"
        confinement = read_process(process.pid).confinement
        assert confinement
        assert not confinement.cgroup_namespace
        assert not confinement.ipc_namespace
        assert confinement.no_new_privs
        assert "SYS_PTRACE" not in confinement.capabilities
    finally:
        end(process)


@pytest.mark.parametrize(
    ("kept", "left"), [("renderD129", ["renderD129"]), ("renderD130", ["card0", "renderD128", "renderD129"])]
)
def test_of_device_files_only_its_own_are_left(tmp_path: Path, kept: str, left: list[str]) -> None:
    """A file that does not exist cannot be kept: then nothing is changed."""
    for name in ("card0", "renderD128", "renderD129"):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # a null device
    source = "import os, sys; print(*sorted(os.listdir(sys.argv[1]))); os.write(os.open(sys.argv[2], os.O_RDWR), b'x')"
    entry = FenceEntry(confined=True, device_files=(str(tmp_path / kept),))
    command = entry.command([sys.executable, "-I", "-S", "-c", source, str(tmp_path), str(tmp_path / left[-1])])
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, left), ended.stderr
    assert len(list(tmp_path.iterdir())) == 3
