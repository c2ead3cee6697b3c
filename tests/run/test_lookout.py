"""What somebody changes while a launch works is seen, also if it is put back. A workload may schedule itself."""

from __future__ import annotations

import errno
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milabench_ng.fence.interface import Group
from milabench_ng.fence.kernel.limits import ThreadSchedule
from milabench_ng.fence.kernel.mounts import find, parse_mountinfo
from milabench_ng.records.isolation import Effective, ProcView
from milabench_ng.records.record import Record
from milabench_ng.run.events.run_events import AnyRunEvent, BatchBegins, LaunchState
from milabench_ng.run.execution import batch, lookout
from milabench_ng.run.execution.group_evidence import GroupEvidence
from milabench_ng.run.execution.lookout import Lookout
from tests.run.conftest import AT_WORK, BROKEN, STEADY, Act, Finished, Runner, needs_two_cpus
from tests.run.processes import descriptors, own_files
from tests.run.test_machinery import once

MOUNTS = parse_mountinfo(Path("/proc/self/mountinfo").read_text())


def members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def group_of(job: str, file: str) -> Path:
    """The group of a tenant that has this file."""
    return own_files(f"b0-d{job}/{file}")[0].parent


def at_work(change: Callable[[], None]) -> Act:
    """Do something once the first launch works."""
    return once(LaunchState, lambda _: change(), state="working")


def first(finished: Finished) -> Record:
    """The record of the first tenant, of a run that was fenced; that of its neighbour is good."""
    if finished.outcome.tier != "full":
        pytest.skip(f"the fence is {finished.outcome.tier} here")
    found, *others = finished.records
    assert all(other.success and "scheduling" not in kinds(other) for other in others)
    return found


def kinds(record: Record) -> list[str]:
    return [mark.kind for mark in record.mnb.marks]


def scheduling(record: Record) -> str:
    """What the mark says."""
    (mark,) = (mark for mark in record.mnb.marks if mark.kind == "scheduling")
    return mark.what


def none_left() -> None:
    """inotify_init1(2) where the user has as many instances as allowed."""
    raise OSError(errno.EMFILE, "inotify_init1")


def other_cpu(cpus: str) -> int:
    """One that is not the first of these."""
    return next(iter({*range(os.cpu_count() or 1)} - {int(cpus.partition("-")[0])}))


def put_on_other_cpus(seconds: float) -> None:
    group = group_of("0", "cpuset.cpus")
    before = (group / "cpuset.cpus").read_text()
    (group / "cpuset.cpus").write_text(str(other_cpu(before)))
    time.sleep(seconds)
    (group / "cpuset.cpus").write_text(before)


@pytest.mark.root
@needs_two_cpus
@pytest.mark.parametrize("deaf", [False, True])
def test_a_cpuset_that_is_changed_and_put_back_is_seen(
    run_profile: Runner, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    """Also where the kernel tells of no writes: then if it takes longer than the time between two looks."""
    if deaf:
        monkeypatch.setattr(lookout, "Writes", none_left)
    monkeypatch.setattr(lookout, "LOOK_S", 0.1 if deaf else 3600.0)
    record = first(
        run_profile(STEADY, at_work(lambda: put_on_other_cpus(1.0 if deaf else 0.1)), rule=AT_WORK, tenants=2)
    )
    assert record.mnb.failure is not None
    assert record.mnb.failure.cause == "isolation_lost"
    assert "s after the start: cpus was" in record.mnb.failure.detail


@pytest.mark.root
def test_a_write_that_changes_nothing_is_nothing(run_profile: Runner) -> None:
    def write() -> None:
        for name in ("cpuset.cpus", "memory.limit_in_bytes", "memory.max"):
            for file in own_files(f"b0-d0/{name}"):
                for _ in range(50):
                    file.write_text(file.read_text())

    record = first(run_profile(STEADY, at_work(write), rule=AT_WORK, tenants=1))
    assert (record.success, "scheduling" in kinds(record)) == (True, False)


@pytest.fixture
def slow() -> Iterator[Path]:
    """A group of the cpu hierarchy of v1 that gives a fifth of a CPU."""
    mount = find(MOUNTS, "cpu")
    if mount is None or os.geteuid() != 0:
        pytest.skip("needs root and the cpu controller of cgroup v1")
    group = Path(mount.point, f"mnb-test-{os.urandom(4).hex()}")
    group.mkdir()
    (group / "cpu.cfs_quota_us").write_text("20000")
    yield group
    deadline = time.monotonic() + 20
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.root
@pytest.mark.parametrize("file", ["cgroup.procs", "tasks"])
def test_a_worker_that_is_moved_into_a_group_with_a_quota_fails(run_profile: Runner, slow: Path, file: str) -> None:
    """The fence has no groups in that hierarchy."""

    def move() -> None:
        for pid in members(group_of("0", "cpuset.cpus")):
            (slow / file).write_text(str(pid))

    record = first(run_profile(STEADY, at_work(move), rule=AT_WORK))
    assert record.mnb.failure is not None
    assert record.mnb.failure.cause == "isolation_lost"
    assert f"of cpu and is in /{slow.name}" in record.mnb.failure.detail


@pytest.mark.root
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 7), "niceness 7 instead of 0"),
        (lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)), "class batch instead of other"),
    ],
)
def test_scheduling_that_is_changed_is_a_mark(run_profile: Runner, change: Callable[[int], None], told: str) -> None:
    def act() -> None:
        for pid in members(group_of("0", "cpuset.cpus")):
            change(pid)

    record = first(run_profile(STEADY, at_work(act), rule=AT_WORK))
    assert record.success
    assert told in scheduling(record)
    assert "s after the start" in scheduling(record)


@pytest.mark.root
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs a share of two CPUs")
def test_an_affinity_that_is_narrowed_and_put_back_is_a_mark(run_profile: Runner) -> None:
    def act() -> None:
        for pid in members(group_of("0", "cpuset.cpus")):
            before = os.sched_getaffinity(pid)
            os.sched_setaffinity(pid, {min(before)})
            time.sleep(1.2)
            os.sched_setaffinity(pid, before)

    record = first(run_profile(STEADY, at_work(act), rule=AT_WORK, tenants=1))
    assert record.success
    assert "CPUs 0 instead of 0-1" in scheduling(record)


@pytest.mark.root
def test_a_workload_that_schedules_itself_is_not_accused(run_profile: Runner) -> None:
    record = first(run_profile({"considerate": {"workload": f"{BROKEN}:considerate"}}, tenants=1))
    assert (record.success, "scheduling" in kinds(record)) == (True, False)


def test_the_first_reason_is_the_one_told() -> None:
    """What is found later, at the stop or after it, may follow from it."""
    nothing: Any = None
    launch = SimpleNamespace(job_id="d0", slot_ids=("0",))
    tenant: Any = SimpleNamespace(launch=launch, groups={}, intruder="intruder", alive=True)
    runner = batch.BatchRunner([tenant], nothing, {}, nothing, nothing)
    runner.evidence["d0"] = {"0": GroupEvidence()}
    runner._changed(tenant, "0", lookout.Change(lost=("its cpuset",)))
    runner._collect()
    assert runner.evidence["d0"]["0"].mismatch == "isolation changed before the start: its cpuset"


def verified(change: Callable[[], None]) -> type[Lookout]:
    """A lookout before whose first look something happens to the first tenant."""

    class Late(Lookout):
        def __init__(self, group: Group, effective: Effective, proc: ProcView, known: Mapping[int, ThreadSchedule]):
            if group.name.endswith("-d0"):
                change()
            super().__init__(group, effective, proc, known)

    return Late


@pytest.mark.root
@needs_two_cpus
def test_a_change_between_entry_and_the_first_look_is_seen(
    run_profile: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written before anybody listens, and put back after the start."""
    own: list[str] = []

    def take() -> None:
        file = group_of("0", "cpuset.cpus") / "cpuset.cpus"
        own.append(file.read_text())
        file.write_text(str(other_cpu(own[0])))

    def give_back() -> None:
        (group_of("0", "cpuset.cpus") / "cpuset.cpus").write_text(own[0])

    monkeypatch.setattr(batch, "Lookout", verified(take))
    record = first(run_profile(STEADY, at_work(give_back), rule=AT_WORK, tenants=2))
    assert record.mnb.failure is not None
    assert record.mnb.failure.cause == "isolation_lost"
    assert "before the start: cpus was" in record.mnb.failure.detail


@pytest.mark.root
def test_scheduling_that_is_changed_between_entry_and_the_first_look_is_a_mark(
    run_profile: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renice() -> None:
        for pid in members(group_of("0", "cgroup.procs")):
            os.setpriority(os.PRIO_PROCESS, pid, 5)

    monkeypatch.setattr(batch, "Lookout", verified(renice))
    record = first(run_profile(STEADY, tenants=1))
    assert record.success
    assert "niceness 5 instead of 0" in scheduling(record)


@pytest.mark.root
@needs_two_cpus
def test_a_rank_that_cannot_enter_is_named(run_profile: Runner) -> None:
    """Its CPUs were given to somebody else before it came."""

    def take(event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState) and (event.label, event.state) == ("trial.scaling.2", "starting"):
            (file,) = own_files("b1-d1/cpuset.cpus")
            file.write_text(str(other_cpu(file.read_text())))

    arguments = {"arch": "resnet18", "batch_size": 2, "image_size": 32}
    test = {"workload": "scaling", "arguments": arguments, "partition_scheme": {"type": "gpu-progression"}}
    finished = run_profile({"scaling": test}, take, tenants=2)
    if finished.outcome.tier != "full":
        pytest.skip(f"the fence is {finished.outcome.tier} here")
    _, record = finished.records
    assert record.mnb.failure is not None
    assert record.mnb.failure.cause == "isolation_lost"
    assert record.mnb.failure.detail.startswith("could not enter its isolation: cannot run on CPUs [")


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What refers to itself is not freed by chance."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.root
@pytest.mark.usefixtures("no_collection")
def test_no_file_of_a_group_stays_open_after_a_launch_that_died(run_profile: Runner) -> None:
    """A node of eight GPUs on which all launches fail would soon have no descriptors left."""
    left: list[str] = []

    def look(event: AnyRunEvent) -> None:
        if isinstance(event, BatchBegins) and event.number == 1:
            left.extend(name for name in descriptors(os.getpid()).values() if "/b0-d" in name)

    finished = run_profile(
        {"raises": {"workload": f"{BROKEN}:raises", "arguments": {"after": 5}}}, look, tenants=1, repeat=2
    )
    assert [record.mnb.failure and record.mnb.failure.cause for record in finished.records] == ["exception"] * 2
    assert left == []
