"""What mnb may kill. Every test runs in a pid namespace of its own, so that a mistake can hurt nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence import runs
from milabench_ng.fence.backends.cgroup2 import Cgroup2Group
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Fence, IsolationMismatch
from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.processes import Process, Stat, followed
from milabench_ng.fence.killing import OwnGroup, sweep
from milabench_ng.records.isolation import Share

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))), reason="needs root and util-linux"
    ),
]
HERE = str(Path(__file__).parent)
BLIND = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
PRELUDE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from fence_waiting import process_of, wait_for
from milabench_ng.fence import guardian
from milabench_ng.fence.kernel.processes import Family, Process, identify, is_there
from milabench_ng.fence.killing import NotOursError, OwnGroup, kill, send

class Everything:
    proved = staticmethod(set)

class Nothing:
    proved = staticmethod(lambda _: set())

def start(*words, **options):
    return subprocess.Popen(words or ("sleep", "600"), **options)

def refusal(pids, proof):
    try:
        return sorted(send(signal.SIGKILL, pids, proof))
    except NotOursError as error:
        return str(error).partition(": ")[2]

def used_again(process, **options):
    '''Another process with the pid of one that has ended.'''
    assert identify(process.pid) is None
    time.sleep(0.02)  # two clock ticks
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(process.pid - 1))
    other = start(**options)
    assert other.pid == process.pid
    return other
"""


def in_a_namespace(source: str, *arguments: str, before: list[str] | None = None, hide: str = "true") -> str:
    """What a program says whose parent is a shell, whose parent is the init process of a new pid namespace."""
    program = [*(before or []), sys.executable, "-c", PRELUDE + source, *arguments]
    done = subprocess.run(
        [
            *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
            *("sh", "-c", f'{hide}; sh -c \'"$@"; exit $?\' shell "$@"; exit $?', "init", *program),
        ],
        env={**os.environ, "PYTHONPATH": HERE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs_pids_on_demand() -> None:
    if not Path("/proc/sys/kernel/ns_last_pid").exists():
        pytest.skip("this kernel does not let root choose the next pid (CONFIG_CHECKPOINT_RESTORE)")


def test_some_are_never_signalled_whatever_the_proof_says() -> None:
    said = in_a_namespace("""
mine, theirs = start(), start(user=65534)
above = os.getppid()
print(refusal([1], Everything()))
print(refusal([above, mine.pid], Everything()))
print(mine.wait(), refusal([os.getpid()], Everything()))
print(refusal([theirs.pid], Nothing()), theirs.poll())
print(refusal([theirs.pid], Everything()) == [theirs.pid], theirs.wait())
""")
    lines = said.replace("process 2", "process N").replace("process 3", "process N").splitlines()
    assert lines[0] == "process 1 is the init process"
    assert lines[1] == "process N is an ancestor of this one"
    assert lines[2].startswith("-9 process ")
    assert lines[2].endswith(" is this one")
    assert lines[3].endswith("is another user's None")
    assert lines[4] == "True -9"


def test_a_process_that_is_not_proved_is_not_signalled() -> None:
    assert (
        in_a_namespace("""
worker = start("sh", "-c", "sleep 600 & wait")
neighbour = start()
family = Family(process_of(worker.pid))
assert wait_for(lambda: Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text())
child = int(Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text())
print(refusal([neighbour.pid, 2**22 - 1, child], family) == [child], neighbour.poll())
print(Family(process_of(worker.pid), itself=False).proved([worker.pid]), family.proved([worker.pid]) == {worker.pid})
""")
        == "True None\nset() True\n"
    )


def test_a_number_that_is_used_again_is_another_process() -> None:
    needs_pids_on_demand()
    assert (
        in_a_namespace("""
worker = start()
family = Family(process_of(worker.pid))
worker.kill(); worker.wait()
other = used_again(worker)
print(refusal([other.pid], family), is_there(family.root), other.poll())
""")
        == "[] False None\n"
    )


def test_the_guardian_knows_a_session_from_a_later_one_of_its_number() -> None:
    """And ends what the session's leader has left when it is the same one."""
    needs_pids_on_demand()
    assert (
        in_a_namespace("""
argv = [sys.executable, "-I", "-S", guardian.__file__]
for reused in (True, False):
    minder = subprocess.Popen(argv, stdin=subprocess.PIPE)
    leader = start("sh", "-c", "sleep 600 & echo $!; wait", stdout=subprocess.PIPE, text=True, start_new_session=True)
    child = process_of(int(leader.stdout.readline()))
    known = process_of(leader.pid)
    minder.stdin.write(f"process {known.pid} {known.start}\\n".encode()); minder.stdin.flush()
    # It has heard of the leader when it holds it: as a descriptor of its own.
    def target(entry):
        try:
            return os.readlink(entry)
        except FileNotFoundError:  # closed since it was listed
            return ""
    held = lambda: any("pidfd" in target(entry) for entry in Path(f"/proc/{minder.pid}/fd").iterdir())
    assert wait_for(held)
    if reused:
        os.kill(child.pid, signal.SIGKILL)
        assert wait_for(lambda: not is_there(child))
    leader.kill(); leader.wait()
    assert wait_for(lambda: not held())
    bystander = used_again(leader, start_new_session=True) if reused else start(start_new_session=True)
    minder.stdin.close()
    print(minder.wait(), is_there(child), bystander.poll())
""")
        == "0 False None\n0 False None\n"
    )


def test_a_parent_in_a_group_of_ours_is_spared_and_named(fence: Fence, make_share: Callable[..., Share]) -> None:
    group = fence.create("t0", make_share())
    procs = group.entry.procs
    said = in_a_namespace(
        """
groups = [OwnGroup.noted(os.path.dirname(procs)) for procs in sys.argv[1:]]
mine, above = start(), os.getppid()
for procs in sys.argv[1:]:
    for pid in (above, mine.pid):
        Path(procs).write_text(str(pid))
try:
    kill(groups)
except NotOursError as error:
    print(error)
print(mine.wait(), process_of(above).pid == above)
for procs in sys.argv[1:]:
    Path(procs).parents[2].joinpath("cgroup.procs").write_text(str(above))
""",
        *procs,
    )
    first, second = said.splitlines()
    assert "is an ancestor of this one; it is in the group " in first
    assert first.endswith("move it out")
    assert second == "-9 True"
    assert group.remove()


@pytest.fixture
def bystander() -> subprocess.Popen[bytes]:  # type: ignore[misc]
    process = subprocess.Popen(["sleep", "600"])
    yield process  # type: ignore[misc]
    process.kill()
    process.wait()


def unified(capabilities: Capabilities) -> Path:
    return Path(capabilities.unified or capabilities.parents[0])


def test_a_group_of_the_same_name_that_somebody_else_made_is_left(
    capabilities: Capabilities, bystander: subprocess.Popen[bytes]
) -> None:
    place = unified(capabilities) / "again"
    place.mkdir()
    ours = OwnGroup.noted(str(place))
    place.rmdir()
    place.mkdir()
    try:
        (place / "cgroup.procs").write_text(str(bystander.pid))
        assert ours.proved([bystander.pid]) == set()
        assert sweep([ours], patience_s=0.1) == (0, 0, (f"not removed: {place} was not created by this run",))
        assert bystander.poll() is None
        assert place.is_dir()
    finally:
        (place.parent / "cgroup.procs").write_text(str(bystander.pid))
        place.rmdir()


def test_a_tenant_in_a_group_that_was_replaced_is_not_verified(
    capabilities: Capabilities, bystander: subprocess.Popen[bytes]
) -> None:
    place = unified(capabilities) / "replaced"
    place.mkdir()
    share = Share(tuple(sorted(os.sched_getaffinity(0))), (0,), 1 << 30, 1 << 30, 100, 1)
    group = Cgroup2Group("t0", share, Group2(place), "/replaced", frozenset(), shm=False)
    group._groups = {}
    group.verify(process_of(bystander.pid))
    place.rmdir()
    place.mkdir()
    with pytest.raises(IsolationMismatch, match="is not the group that was made for t0"):
        group.verify(process_of(bystander.pid))
    place.rmdir()


def test_a_group_that_no_run_has_marked_is_not_reaped(
    capabilities: Capabilities, bystander: subprocess.Popen[bytes]
) -> None:
    top = unified(capabilities)
    place = top / "mnb" / "web-server"
    place.mkdir(parents=True)
    try:
        os.setxattr(place, "user.mnb-test", b"")
    except OSError:
        pytest.skip("no extended attributes on cgroups before Linux 5.7: there the lock decides")
    try:
        (place / "cgroup.procs").write_text(str(bystander.pid))
        [said] = runs.reap([str(top)])
        assert said.startswith(f"isolation: not removed: {place} has no mnb owner attribute")
        assert bystander.poll() is None
    finally:
        (top / "cgroup.procs").write_text(str(bystander.pid))
        place.rmdir()
        place.parent.rmdir()


def test_what_cannot_be_read_is_not_gone() -> None:
    source = """
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.whereabouts import outside
for what in (read_process, identify, lambda pid: outside(pid, {"": "/x"}, ())):
    for pid in (1, 2**22 - 1, 2**62):
        try:
            print(type(what(pid)).__name__, end=" ")
        except OSError as error:
            print(type(error).__name__, end=" ")
"""
    gone = ["ProcessLookupError", "ProcessLookupError", "Process", "NoneType", "NoneType", "str", "str", "str"]
    assert in_a_namespace(source).split() == ["ProcView", *gone]
    assert in_a_namespace(source, before=BLIND).split() == ["PermissionError", *gone]
    denied = ["PermissionError", *gone[:2], "PermissionError", *gone[3:5], "PermissionError", *gone[6:]]
    assert in_a_namespace(source, before=BLIND, hide="mount -o remount,hidepid=1,gid=65534 /proc").split() == denied
    hidden = [*gone[:2], gone[0], *["NoneType"] * 3, *["str"] * 3]
    assert in_a_namespace(source, before=BLIND, hide="mount -o remount,hidepid=2,gid=65534 /proc").split() == hidden


def test_a_session_is_followed_as_long_as_a_known_member_is_listed() -> None:
    def row(parent: int, session: int, start: int, state: str = "S") -> Stat:
        return Stat("x", state, parent, session, 0, 1, start)

    table = {
        10: row(1, 10, 5, "Z"),  # a leader that has ended and keeps its number
        11: row(1, 10, 6),
        12: row(11, 12, 7),  # its child, in a session of its own
        13: row(1, 12, 8),  # an orphan of that
        20: row(1, 20, 90),  # a later process with the number of one that is known
        21: row(20, 20, 91),
        30: row(10, 30, 9),  # another tenant's rank
        31: row(1, 30, 9),
    }
    known = {Process(10, 5): "a", Process(20, 5): "a", Process(30, 9): "b"}
    assert followed(known, table) == {11: "a", 12: "a", 13: "a", 30: "b", 31: "b"}


def test_where_proc_shows_another_namespace_nothing_is_signalled() -> None:
    source = PRELUDE + "mine = start()\nprint(refusal([mine.pid], Everything()), mine.poll(), flush=True); mine.kill()"
    said = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": HERE},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert said == "/proc shows another pid namespace than its own None\n"


def test_where_proc_shows_another_namespace_no_run_begins(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "milabench_ng", "run", "toy_reg"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "isolation: /proc shows the processes of another pid namespace" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_guardian_ends_with_its_pipe() -> None:
    """A line cut short by the end of the orchestrator names nothing."""
    argv = [sys.executable, "-I", "-S", str(Path(runs.guardian.__file__))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(b"process 1 ")
        process.stdin.close()
        assert wait_for(lambda: process.poll() == 0)
