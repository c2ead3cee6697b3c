"""After any end of an orchestrator nothing is left: the guardian sees to it at once, the next start at the latest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence import runs
from milabench_ng.fence.cache_groups import find_cache_groups
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import IsolationRequest, open_fence, reap
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.kernel.processes import Process, is_there
from milabench_ng.fence.killing import OwnGroup, Swept, noted_groups, sweep
from milabench_ng.model.errors import InUseError, IsolationError
from milabench_ng.records.isolation import Share

pytestmark = pytest.mark.root

# Makes a fence with two tenants, each with a child and a daemon, tells who they are, and waits to be killed.
ORCHESTRATOR = """
import json, msgspec, subprocess, sys, time
from milabench_ng.fence.choosing import open_fence
from milabench_ng.fence.cache_groups import find_cache_groups
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.fence.kernel.processes import identify
from milabench_ng.records.isolation import Share
capabilities = msgspec.json.decode(sys.argv[1], type=Capabilities)
fence = open_fence(capabilities, sys.argv[3], "mnb-test-crash", holds="CPUs 0-1")
share = msgspec.json.decode(sys.argv[2], type=Share)
tenant = [sys.executable, "-I", "-S", "-c", "import os, time; os.fork() or (os.setsid(), os.fork()); time.sleep(60)"]
groups = [fence.create(f"t{index}", share) for index in range(2)]
null = subprocess.DEVNULL
running = [subprocess.Popen(group.entry.command(tenant), stdin=null, stdout=null) for group in groups]
waiting = dict(zip(running, groups))
while waiting or not all(len(group.pids()) == 3 for group in groups):
    for process, group in list(waiting.items()):
        try:
            group.verify(identify(process.pid))
            del waiting[process]
        except IsolationMismatch:
            time.sleep(0.01)
guardian = (fence._run if hasattr(fence, "_run") else fence)
guardian = (guardian.guardian if hasattr(guardian, "guardian") else guardian._guardian).pid
print(json.dumps({"pids": [pid for group in groups for pid in group.pids()], "guardian": guardian}), flush=True)
time.sleep(60)
"""


class StandIn:
    """An orchestrator to be killed, and what it told of itself."""

    def __init__(self, capabilities: Capabilities, share: Share, isolation: str) -> None:
        words = [msgspec.json.encode(value).decode() for value in (capabilities, share)]
        argv = [sys.executable, "-c", ORCHESTRATOR, *words, isolation]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        told = json.loads(self.process.stdout.readline())
        self.tenants = [process_of(pid) for pid in told["pids"]]
        self.guardian = process_of(told["guardian"])
        self.process.stdout.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def stand_in(capabilities: Capabilities, make_share: Callable[..., Share]) -> Iterator[Callable[[str], StandIn]]:
    made: list[StandIn] = []

    def make(isolation: str) -> StandIn:
        made.append(StandIn(capabilities, make_share(), isolation))
        return made[-1]

    yield make
    for one in made:
        one.kill()
        wait_for(lambda one=one: not living([one.guardian]))
        for process in filter(is_there, (*one.tenants, one.guardian)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def living(processes: list[Process]) -> list[Process]:
    return list(filter(is_there, processes))


def groups(capabilities: Capabilities) -> list[Path]:
    return [path for parent in capabilities.parents for path in Path(parent).glob("mnb/*/")]


@pytest.mark.parametrize("isolation", ["full", "affinity"])
def test_guardian_removes_all_when_the_orchestrator_is_killed(
    capabilities: Capabilities, stand_in: Callable[[str], StandIn], isolation: str
) -> None:
    one = stand_in(isolation)
    assert len(living(one.tenants)) == 6
    one.kill()
    assert wait_for(lambda: not living(one.tenants) and not groups(capabilities), seconds=1.0)
    assert wait_for(lambda: not living([one.guardian]))


def test_a_guardian_that_was_stopped_goes_on_and_ends() -> None:
    one = runs.Guardian()
    known = process_of(one.pid)
    os.kill(one.pid, signal.SIGSTOP)
    for number in range(10_000):  # more than its pipe holds
        one.mind(Process(2**22 + number, 1))  # above all pids
    os.kill(one.pid, signal.SIGSTOP)
    one.dismiss()
    assert not is_there(known)


def test_next_start_reaps_when_the_guardian_was_killed_too(
    capabilities: Capabilities, stand_in: Callable[[str], StandIn]
) -> None:
    one = stand_in("full")
    os.kill(one.guardian.pid, signal.SIGKILL)
    assert wait_for(lambda: not living([one.guardian]))
    one.kill()
    # The two first processes die with their parent (PDEATHSIG); their children and daemons live on.
    assert wait_for(lambda: len(living(one.tenants)) == 4)
    hierarchies = len(capabilities.parents)
    removed = f"killed 4 processes, removed {3 * hierarchies} groups."
    assert reap(capabilities) == [f"isolation: cleaned up dead run mnb-test-crash: {removed}"]
    assert wait_for(lambda: not living(one.tenants))
    assert not groups(capabilities)
    assert reap(capabilities) == []


def test_a_living_run_is_refused(capabilities: Capabilities, stand_in: Callable[[str], StandIn]) -> None:
    one = stand_in("full")
    with pytest.raises(InUseError) as caught:
        reap(capabilities)
    assert str(caught.value).startswith(
        f"isolation: run mnb-test-crash holds CPUs 0-1 (pid {one.process.pid}). Wait for it to end. A run begun"
    )
    assert reap(capabilities, allow_concurrent=True) == []
    assert len(living(one.tenants)) == 6


def test_a_dead_runs_scope_may_vanish_while_it_is_reaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd removes a scope as soon as its last process has been killed: by us, a moment before."""
    scope = tmp_path / "mnb-1.scope"
    (scope / "mnb" / "dead").mkdir(parents=True)
    runs._sign(scope / "mnb" / "dead", "")

    def sweep(groups: list[OwnGroup], patience_s: float) -> Swept:
        assert (groups, patience_s) == ([OwnGroup.noted(str(scope / "mnb" / "dead"))], 5.0)
        shutil.rmtree(scope)
        return Swept(2, 1, ())

    monkeypatch.setattr(runs, "sweep", sweep)
    said = "isolation: cleaned up dead run dead: killed 2 processes, removed 1 groups."
    assert runs.reap([str(scope)]) == [said]


def test_a_dead_runs_guardian_may_remove_its_groups_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start right after `kill -9` meets it."""
    directory = tmp_path / "mnb" / "dead"
    directory.mkdir(parents=True)

    def is_signed(directory: Path) -> bool:
        directory.rmdir()
        return True

    monkeypatch.setattr(runs, "_is_signed", is_signed)
    assert runs.reap([str(tmp_path)]) == []


def test_a_dead_runs_guardian_may_remove_its_cache_groups_first(tmp_path: Path) -> None:
    (tmp_path / "info").mkdir()
    (tmp_path / "mnb-dead-t0").symlink_to("gone")  # listed, and not there
    assert find_cache_groups(tmp_path) == {str(tmp_path / "mnb-dead-t0"): False}
    assert noted_groups([str(tmp_path / "gone"), str(tmp_path / "info")]) == [OwnGroup.noted(str(tmp_path / "info"))]


# Removes whatever is empty, as systemd does in a scope, as fast as it can.
RIVAL = """
import os, sys
print(flush=True)
while os.path.isdir(sys.argv[1]):
    for group, _, _ in os.walk(sys.argv[1], topdown=False):
        try:
            os.rmdir(group)
        except OSError:
            pass
"""


def test_groups_count_as_removed_whoever_removes_them(
    fence: Fence, make_share: Callable[..., Share], start: Callable[..., subprocess.Popen[str]]
) -> None:
    tenants = [fence.create(f"t{index}", make_share()) for index in range(6)]
    for tenant in tenants:
        start(tenant, "import time; time.sleep(60)")
    assert wait_for(lambda: all(len(tenant.pids()) == 1 for tenant in tenants))
    run = Path(tenants[0].entry.procs[0]).parents[1]
    rival = subprocess.Popen([sys.executable, "-c", RIVAL, str(run)], stdout=subprocess.PIPE, text=True)
    assert rival.stdout
    rival.stdout.readline()
    assert sweep([OwnGroup.noted(str(run))], patience_s=5.0) == (6, 7, ())
    rival.communicate()


def test_a_run_that_cannot_lock_its_groups_keeps_none_of_the_locks(tmp_path: Path) -> None:
    parents = [tmp_path / "first", tmp_path / "second"]
    for parent in parents:
        parent.mkdir()
    rivals = []

    def prepare(directory: Path) -> None:
        if directory == parents[1] / "mnb" / "mnb-test-locks":
            rivals.append(runs.lock(directory))

    before = os.listdir("/proc/self/fd")
    with pytest.raises(IsolationError, match="cannot make the groups of run mnb-test-locks"):
        runs.RunGroups([str(parent) for parent in parents], "mnb-test-locks", "", prepare)
    os.close(rivals.pop())
    assert os.listdir("/proc/self/fd") == before
    assert not [*tmp_path.glob("*/*")]


@pytest.mark.usefixtures("fence")
def test_a_taken_name_is_refused(capabilities: Capabilities) -> None:
    [name] = {path.name for path in groups(capabilities)}
    with pytest.raises(IsolationError, match="cannot make the groups of run"):
        open_fence(capabilities, "full", name)
    assert groups(capabilities), "the other run's groups must still be there"


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A frozen group of cgroup v1: what is in it does not even die of SIGKILL."""
    place = Path(f"/sys/fs/cgroup/freezer/mnb-test-{os.getpid()}")
    if not os.access(place.parent, os.W_OK):
        pytest.skip("needs the freezer of cgroup v1, to have a process that cannot be killed")
    place.mkdir()
    yield place
    (place / "freezer.state").write_text("THAWED")
    assert wait_for(lambda: not (place / "cgroup.procs").read_text())
    place.rmdir()


@pytest.mark.parametrize("isolation", ["full", "none"])
def test_what_the_guardian_removes_at_the_end_is_not_called_left(
    capabilities: Capabilities,
    make_share: Callable[..., Share],
    start: Callable[..., subprocess.Popen[str]],
    freezer: Path,
    isolation: IsolationRequest,
) -> None:
    """It tries for longer than the end of a run does."""
    fence = open_fence(capabilities, isolation, f"mnb-test-late-{isolation}")
    tenant = fence.create("t0", make_share())
    process = start(tenant, "print(flush=True); import time; time.sleep(600)")
    assert process.stdout
    process.stdout.readline()
    tenant.verify(process_of(process.pid))
    (freezer / "cgroup.procs").write_text(str(process.pid))
    (freezer / "freezer.state").write_text("FROZEN")
    guardian = fence._run.guardian if isolation == "full" else fence._guardian  # type: ignore[attr-defined]

    def thaw() -> None:
        assert wait_for(lambda: guardian._orders.closed, seconds=60.0)
        (freezer / "freezer.state").write_text("THAWED")

    with ThreadPoolExecutor() as threads:
        thawed = threads.submit(thaw)
        assert fence.close() == ()
        thawed.result()
    assert process.wait() == -signal.SIGKILL
    assert not [path for path in groups(capabilities) if path.name.startswith("mnb-test-late")]


def test_nothing_is_left_after_a_normal_end(capabilities: Capabilities, make_share: Callable[..., Share]) -> None:
    fence = open_fence(capabilities, "full", "mnb-test-normal")
    for index in range(8):
        fence.create(f"t{index}", make_share())
    fence.close()
    assert not [path for parent in capabilities.parents for path in Path(parent).glob("mnb*")]
