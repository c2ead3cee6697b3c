"""Launches that hang: ended in their time, as a whole, with the stacks of all their processes in the log."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.run.events.run_events import AnyRunEvent, LaunchState, Slices
from milabench_ng.run.execution import batch
from tests.run.conftest import AT_WORK, BROKEN, Finished, Runner, needs_two_cpus

SILENCE_S = 5.0


class StopOne:
    """Stops the first tenant's worker (SIGSTOP) when it has measured some slices."""

    def __init__(self) -> None:
        self.pid = 0
        self.done = False

    def __call__(self, event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState) and event.state == "working" and event.job_id == "0.0":
            self.pid = event.rank_pids[0]
        if isinstance(event, Slices) and event.job_id == "0.0" and event.slices[0] >= 2 and not self.done:
            self.done = True
            self.act()

    def act(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)


@needs_two_cpus
def test_a_stopped_worker_is_ended_and_its_neighbour_goes_on(run_profile) -> None:  # type: ignore[no-untyped-def]
    stop = StopOne()
    finished = run_profile(
        {"steady": {"workload": f"{BROKEN}:steady", "limits": {"silence": SILENCE_S}}}, stop, rule=AT_WORK, start="warm"
    )
    hung, alive = finished.records
    assert hung.mnb.failure.cause == "timeout"
    assert hung.mnb.failure.detail == f"no slice for {SILENCE_S:.0f} s"
    assert len(hung.mnb.ranks[0].slices) >= 2
    assert not Path(f"/proc/{stop.pid}").exists()
    assert alive.success
    assert alive.mnb.neighbours.lost[0].cause == "timeout"
    log = (finished.folder / "logs" / "trial.steady.J0.0.log").read_text()
    assert f"mnb: stacks of process {stop.pid}: " in log
    assert "stopped" in log
    assert "in steady" in log, "a stopped process goes on to write its stack"


@pytest.fixture(scope="module")
def hung(run_profile: Runner) -> Finished:
    """Launches that hang each in its own way, one after the other in one run."""
    limits = {"silence": 3}
    spread = {"partition_scheme": {"type": "normal"}}
    return run_profile(
        {
            "early": {"workload": f"{BROKEN}:never_ready", "limits": {"ready": 3}},
            "late": {"workload": f"{BROKEN}:hangs", "limits": {"total": 6}},
            "loader": {"workload": f"{BROKEN}:stuck_loader", "limits": limits},
            "ranks": {"workload": f"{BROKEN}:deadlocked", "limits": limits, **spread},
            "bereaved": {"workload": f"{BROKEN}:bereaved", "limits": {"silence": 20}, **spread},
        }
    )


@needs_two_cpus
def test_every_process_of_a_hung_launch_writes_its_stack(hung: Finished) -> None:
    failures = {name: [record.mnb.failure for record in hung.of(name)] for name in ("early", "late", "loader", "ranks")}
    details = {name: {failure and (failure.cause, failure.detail) for failure in failures[name]} for name in failures}
    assert details == {
        "early": {("timeout", "not ready 3 s after it was requested")},
        "late": {("timeout", "still running 6 s after it was requested")},
        "loader": {("timeout", "no slice for 3 s")},
        "ranks": {("timeout", "no slice for 3 s")},
    }
    assert "in never_ready" in hung.log("early")
    assert "in hangs" in hung.log("late")
    loader = (hung.folder / "logs" / "trial.loader.J0.0.log").read_text()
    assert loader.count("mnb: stacks of process") == 2
    assert "in never_comes" in loader
    assert "in stuck_loader" in loader
    ranks = hung.log("ranks")
    assert ranks.count("mnb: stacks of process") == 3, "the agent and two ranks"
    assert "in all_reduce" in ranks
    assert ranks.count("in deadlocked") == 2


@needs_two_cpus
def test_a_killed_rank_is_the_cause_although_the_other_hangs_without_it(hung: Finished) -> None:
    [record] = hung.of("bereaved")
    assert record.mnb.failure is not None
    assert (record.mnb.failure.cause, record.mnb.failure.detail) == ("signal", "rank 1 was killed by SIGKILL")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A frozen group of cgroup v1: what is in it does not even die of SIGKILL, like a process that waits for a disk."""
    place = Path(f"/sys/fs/cgroup/freezer/mnb-test-{os.getpid()}")
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        pytest.skip("needs root and the freezer of cgroup v1, to have a process that cannot be killed")
    place.mkdir()
    yield place
    (place / "freezer.state").write_text("THAWED")
    with contextlib.suppress(OSError):  # a group that is still dying
        place.rmdir()


class FreezeOne(StopOne):
    """Freezes the first tenant's worker, and lets it go after some time."""

    def __init__(self, group: Path) -> None:
        super().__init__()
        self.group = group

    def act(self) -> None:
        (self.group / "cgroup.procs").write_text(str(self.pid))
        (self.group / "freezer.state").write_text("FROZEN")
        thaw = threading.Timer(12.0, (self.group / "freezer.state").write_text, ("THAWED",))
        thaw.daemon = True
        thaw.start()


@needs_two_cpus
@pytest.mark.root
def test_a_worker_that_cannot_be_killed_does_not_hold_up_the_run(run_profile, freezer, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(batch, "KILL_PATIENCE_S", 1.0)
    finished = run_profile(
        {"steady": {"workload": f"{BROKEN}:steady", "limits": {"silence": SILENCE_S}}},
        FreezeOne(freezer),
        rule=AT_WORK,
        repeat=2,
    )
    causes = [record.mnb.failure and record.mnb.failure.cause for record in finished.records]
    assert causes == ["isolation_lost", None, None, None], "somebody moved it"
    assert f"of freezer and is in /{freezer.name}" in finished.records[0].mnb.failure.detail
    assert finished.records[0].mnb.exit_status is None
