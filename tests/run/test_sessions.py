"""A run in several sessions: which launches are whose, also after an interruption."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from milabench_ng.model.plan import Device, Order, Plan, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import Profile, Test
from milabench_ng.records.ledger import Chain, Finished, Interrupted, Recorded, StoppedEarly, ended_by_itself
from milabench_ng.records.names import ResultFolder, file_digest
from milabench_ng.run.jobs import RunOutcome, nothing_left
from milabench_ng.run.persistence.result_writer import ResultWriter
from milabench_ng.run.persistence.run_progress import RunProgress, runs_of_session
from milabench_ng.run.planning.duration import SERVER_S, between_sessions_s
from tests.run.conftest import AT_WORK
from tests.run.shortened import accused
from tests.run.test_resume import STEADY, Interrupt, kinds


def planned(order: Order) -> Plan:
    profile = Profile("s", {name: Test(workload=name) for name in ("a", "b")}, text="{}", source="s.json")
    options = dict.fromkeys(("a", "b"), ResolvedOptions({}))
    return make_plan(profile, options, [Device(index=0, kind="cpu")], 6, order)


@pytest.mark.parametrize("order", ["interleaved", "file", "random"])
def test_a_session_runs_its_repeats_of_all_tests(order: Order) -> None:
    plan = planned(order)
    done: set[tuple[str, str]] = set()
    for expected in (range(2), range(2, 4), range(4, 6)):
        assert runs_of_session(plan, done, 3) == expected
        done |= {(one.label, one.job_id) for one in plan.measured if one.run in expected}
    assert runs_of_session(plan, done, 3) == range(6), "nothing is left but failed launches to retry"


def test_what_a_session_left_comes_before_the_next() -> None:
    plan = planned("interleaved")
    done = {(one.label, one.job_id) for one in plan.measured if one.run < 3} - {("s.b", "1.0")}
    assert runs_of_session(plan, done, 3) == range(2)
    assert runs_of_session(plan, done, 1) == range(6)


def test_only_a_session_that_was_not_interrupted_ended_by_itself() -> None:
    end = Finished(missing=2, failed=0)
    assert ended_by_itself((end,))
    assert not ended_by_itself((Interrupted(by="SIGTERM"), end))
    assert not ended_by_itself((end, Interrupted(by="SIGTERM")))


def test_an_interrupted_session_is_finished_before_the_next_begins(run_profile, resume_run) -> None:  # type: ignore[no-untyped-def]
    stopped = run_profile(STEADY, Interrupt(signal.SIGINT, 1), rule=AT_WORK, tenants=1, repeat=2, sessions=2)
    assert (stopped.outcome.interrupted, stopped.outcome.missing) == (signal.SIGINT, 3)
    second = resume_run(stopped.folder)
    assert second.outcome.missing == 2
    third = resume_run(stopped.folder)
    assert third.outcome.missing == 0
    good = [(one.job_id, one.mnb.session) for one in third.records if one.success]
    assert good == [("0.0", 1), ("1.0", 2), ("2.0", 3), ("3.0", 3)]
    names = kinds(third.events)
    begun = [names[at : at + 2] for at, kind in enumerate(names) if kind == "Session"]
    assert begun == [["Session", "Attempt"], ["Session", "Resumed"], ["Session", "Attempt"]]
    assert accused(stopped.folder, failure_rate=None) == {}


def test_the_time_left_counts_the_sessions_that_follow(tmp_path: Path) -> None:
    plan = planned("file")
    (tmp_path / "ledger.jsonl").touch()
    writer = ResultWriter(ResultFolder(tmp_path), b"", Chain(), None)
    progress = RunProgress(plan, writer, retry=0, sessions=3)
    first = progress.to_do()
    later = progress.later(first)
    writer.close()
    assert [work.batch.launches[0].run for work in first] == [0, 1, 0, 1]
    assert [batch.launches[0].run for batch in later] == [2, 3, 4, 5, 2, 3, 4, 5]
    assert between_sessions_s(first[0].batch, later, plan, 3, 3600.0) == 2 * (3600 + SERVER_S)
    assert between_sessions_s(first[0].batch, later[:1], plan, 3, 3600.0) == 3600 + SERVER_S
    assert between_sessions_s(first[0].batch, (), plan, 3, 3600.0) == 0.0


def test_with_a_rule_for_stopping_a_repeat_is_whole_before_the_next(tmp_path: Path) -> None:
    plan = planned("interleaved")
    (tmp_path / "ledger.jsonl").touch()
    writer = ResultWriter(ResultFolder(tmp_path), b"", Chain(), None)
    progress = RunProgress(plan, writer, retry=0, by_repeat=True)
    first = progress.to_do()
    assert [work.batch.launches[0].run for work in first] == [0, 0]
    assert progress.border is None, "no repeat is done"
    for work in first:
        assert progress.border is None, "the repeat has begun"
        progress.begin(work)
        (launch,) = work.batch.launches
        content = f"{launch.label} {launch.job_id}".encode()
        known = {"label": launch.label, "job_id": launch.job_id, "number": 1, "file": launch.label, "cause": None}
        writer.keep([(launch.label, content)], Recorded(sha256=file_digest(content), **known))
    progress = RunProgress(plan, writer, retry=0, by_repeat=True)
    assert (progress.border, [work.batch.launches[0].run for work in progress.to_do()]) == (1, [1, 1])
    progress.enough(StoppedEarly(repeats=1, why="budget", detail="it is late"))
    assert (progress.to_do(), progress.missing, progress.failed) == ((), 0, 0)
    resumed = RunProgress(plan, writer, retry=0, by_repeat=True)
    assert (resumed.to_do(), resumed.missing) == ((), 0), "nothing is left to resume"
    writer.close()


def test_the_end_of_a_run_names_a_retry_that_tries_something_or_none(tmp_path: Path) -> None:
    plan = planned("file")
    (tmp_path / "ledger.jsonl").touch()
    writer = ResultWriter(ResultFolder(tmp_path), b"", Chain(), None)

    def tried(progress: RunProgress, number: int, failing: str | None) -> RunProgress:
        for work in progress.to_do():
            progress.begin(work)
            (launch,) = work.batch.launches
            cause = "exception" if launch.label == failing else None
            name = f"{launch.label}.{launch.job_id}.{number}"
            content = b'{"mnb": {}}'
            known = {"label": launch.label, "job_id": launch.job_id, "number": number, "file": name, "cause": cause}
            writer.keep([(name, content)], Recorded(sha256=file_digest(content), **known))
        return RunProgress(plan, writer, retry=number)

    def said(progress: RunProgress) -> str:
        numbers = {"planned": 12, "failed": progress.failed, "missing": progress.missing, "tier": "full"}
        return nothing_left(
            RunOutcome(folder=tmp_path, interrupted=None, helpful_retry=progress.helpful_retry, **numbers)  # type: ignore[arg-type]
        )

    once = tried(RunProgress(plan, writer, retry=0), 1, "s.b")
    assert "failed attempts: 6 (--retry 1 tries" in said(once)
    assert len(once.to_do()) == 6, "as it says"
    twice = tried(once, 2, "s.b")
    assert "failed attempts: 12 (--retry 2 tries" in said(twice), "with --retry 1, nothing would be tried"
    assert len(twice.to_do()) == 6
    mended = tried(twice, 3, None)
    assert said(mended).endswith("failed attempts: 12, all measured again since")
    assert "--retry" not in said(mended)
    writer.close()
