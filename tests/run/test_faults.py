"""What is left of launches that go wrong: provoked for real."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench_ng.report.reporting import make_report
from milabench_ng.run.events.run_events import AnyRunEvent, BatchBegins, LaunchState, Slices
from tests.run.conftest import AT_WORK, BROKEN, Runner, needs_two_cpus
from tests.run.shortened import accused


class KillOne:
    """Kills one process of the first tenant of one test when it has measured some slices."""

    def __init__(self, label: str, rank: int) -> None:
        self.label = label
        self.rank = rank
        self.pids: dict[tuple[int, str], tuple[int, ...]] = {}
        self.done = False

    def __call__(self, event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState) and (event.label, event.state) == (self.label, "working"):
            self.pids.setdefault((event.batch, event.job_id), event.rank_pids)
        if isinstance(event, Slices) and event.slices[-1] >= 2 and not self.done:
            launch = (event.batch, event.job_id)
            if launch == next(iter(self.pids), None):
                self.done = True
                os.kill(self.pids[launch][self.rank], signal.SIGKILL)


@needs_two_cpus
@pytest.mark.parametrize("start", ["warm", "cold"])
def test_a_killed_worker_leaves_its_slices_and_its_neighbour_says_so(
    run_profile: Runner, resume_run: Runner, start: str
) -> None:
    kill = KillOne("trial.toy_reg", 0)
    finished = run_profile({"toy_reg": {"workload": "toy_reg"}}, kill, rule=AT_WORK, start=start)
    killed, alive = finished.records
    assert kill.done
    assert finished.outcome.failed == 1
    assert [path.name for path in finished.folder.glob("*FAIL*")] == [
        f"trial.toy_reg.J0.0.FAIL.{path.name.split('.')[-2]}.json" for path in finished.folder.glob("*FAIL*")
    ]
    assert not killed.success
    assert killed.mnb.failure.cause == "signal"
    assert "SIGKILL" in killed.mnb.failure.detail
    assert killed.mnb.exit_status == -signal.SIGKILL
    assert len(killed.mnb.ranks[0].slices) >= 2
    assert killed.mnb.ranks[0].slices[0].count > 0
    assert alive.success
    assert alive.mnb.window is not None
    assert alive.mnb.neighbours.planned == 1
    assert alive.mnb.neighbours.alive_at_stop == 0
    (lost,) = alive.mnb.neighbours.lost
    assert lost.job_id == "0.0"
    assert lost.cause == "signal"
    assert lost.seconds_before_stop > 0
    assert any(mark.kind == "neighbours lost" for mark in alive.mnb.marks)
    assert make_report(finished.folder).exit_code == 1
    if start == "warm":  # the retry is the same
        retried = resume_run(finished.folder, retry=2)
        assert sorted(record.mnb.attempt for record in retried.records if record.success) == [1, 2, 2]
        assert accused(finished.folder, failure_rate=None) == {}


@needs_two_cpus
def test_a_killed_rank_fails_its_launch_and_leaves_nothing(run_profile) -> None:  # type: ignore[no-untyped-def]
    kill = KillOne("trial.scaling.2", 1)
    scaling = {
        "workload": "scaling",
        "arguments": {"arch": "resnet18", "batch_size": 2, "image_size": 32},
        "partition_scheme": {"type": "gpu-progression"},
    }
    finished = run_profile({"scaling": scaling}, kill, rule=AT_WORK)
    one, two = finished.records
    assert kill.done
    assert one.success
    assert two.mnb.failure.cause == "signal"
    assert "rank 1" in two.mnb.failure.detail
    assert len(two.mnb.ranks[0].slices) >= 1
    assert len(two.mnb.ranks[1].slices) >= 2
    assert not [rank.pid for rank in two.mnb.ranks if Path(f"/proc/{rank.pid}").exists()]


LOADS: dict[str, object] = {
    "loads": {"workload": "loader", "data_scale": 0.0005, "arguments": {"batch_size": 4, "workers": 1}}
}


def at_batch(number: int, act: Callable[[], object]) -> Callable[[AnyRunEvent], None]:
    """Do something when a batch begins."""

    def look(event: AnyRunEvent) -> None:
        if isinstance(event, BatchBegins) and event.number == number:
            act()

    return look


def test_a_data_root_that_is_deleted_between_batches_ends_what_needs_it(run_profile: Runner, tmp_path: Path) -> None:
    root, steady = tmp_path / "data", {"steady": {"workload": f"{BROKEN}:steady"}}
    writes = {"writes": {"workload": "disk_write", "arguments": {"mib": 4}}}
    act = at_batch(2, lambda: shutil.rmtree(root))
    finished = run_profile({**LOADS, **steady, **writes}, act, tenants=1, repeat=2, order="file", dataroot=root)
    seen = [(record.name, record.mnb.failure and record.mnb.failure.cause) for record in finished.records]
    good = [("trial.loads", None), ("trial.loads", None), ("trial.steady", None), ("trial.steady", None)]
    assert seen == [*good, ("trial.writes", "data_error"), ("trial.writes", "data_error")]
    details = [record.mnb.failure.detail for record in finished.records if record.mnb.failure]
    assert all(str(root) in detail for detail in details)
    assert any("not checked against its checksums after the work" in note for note in finished.notes)


def test_data_that_are_deleted_between_batches_end_what_reads_them(run_profile: Runner, tmp_path: Path) -> None:
    act = at_batch(1, lambda: shutil.rmtree(next(tmp_path.glob("scale-*/*"))))
    finished = run_profile(LOADS, act, tenants=1, repeat=2, dataroot=tmp_path)
    _, lost = finished.records
    assert lost.mnb.failure is not None
    assert lost.mnb.failure.cause == "data_error"
    assert "imagenet" in lost.mnb.failure.detail
    assert str(tmp_path) in lost.mnb.failure.detail
