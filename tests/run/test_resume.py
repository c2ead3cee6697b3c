"""Runs that are stopped and go on, and launches that are tried again: nothing is lost and nothing is hidden."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.cli import call
from milabench_ng.cli.preflight import refuse_to_resume
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.alarms import alarms
from milabench_ng.present.render.next_step import next_step
from milabench_ng.records.isolation import CachePart
from milabench_ng.records.ledger import (
    Attempt,
    CodeSeen,
    DataSeen,
    Finished,
    Interrupted,
    Recorded,
    Resumed,
    Sampled,
    Session,
    Started,
    check_chain,
    lost_attempts,
)
from milabench_ng.records.manifest import Manifest
from milabench_ng.report.reporting import make_report
from milabench_ng.run.events.run_events import AnyRunEvent, LaunchState, Slices
from milabench_ng.run.execution.interruption import SAME_S
from milabench_ng.run.persistence.resuming import SessionDifference, check_plan, check_same, differences
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import verify
from tests.run.conftest import AT_WORK, BROKEN, needs_two_cpus
from tests.run.shortened import accused

ROOT = Path(__file__).parents[2]
STEADY: dict[str, object] = {"steady": {"workload": "toy_reg"}}


class Interrupt:
    """Sends the run a signal in the middle of a batch."""

    def __init__(self, number: signal.Signals, run: int) -> None:
        self.number = number
        self.run = run
        self.sent = False

    def __call__(self, event: AnyRunEvent) -> None:
        if isinstance(event, Slices) and not self.sent and event.job_id == f"{self.run}.0":
            self.sent = True
            os.kill(os.getpid(), self.number)


def kinds(events: Sequence[object]) -> list[str]:
    """Without what sessions read of code and data, which test_proving looks at, and the files of telemetry."""
    return [type(event).__name__ for event in events if not isinstance(event, CodeSeen | DataSeen | Sampled)]


@pytest.fixture(scope="module")
def interrupted(run_profile):  # type: ignore[no-untyped-def]
    """A run of three launches that a batch system stopped in the second."""
    return run_profile(STEADY, Interrupt(signal.SIGTERM, 1), rule=AT_WORK, tenants=1, repeat=3)


def test_a_signal_of_a_batch_system_ends_the_batch_and_is_in_the_ledger(interrupted, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert interrupted.outcome.interrupted
    assert [record.mnb.failure and record.mnb.failure.cause for record in interrupted.records] == [None, "interrupted"]
    assert interrupted.records[1].mnb.ranks[0].slices, "what it measured is kept"
    assert any("interrupted (SIGTERM)" in note for note in interrupted.notes)
    expected = ["Started", "Session", "Attempt", "Recorded", "Attempt", "Recorded", "Interrupted", "Finished"]
    assert kinds(interrupted.events) == expected
    assert interrupted.events[0].plan_sha256 == interrupted.manifest.plan.sha256
    assert interrupted.events[-2:] == (Interrupted(by="SIGTERM"), Finished(missing=2, failed=0))
    assert verify(interrupted.folder, Rules()).facts["launches"] == "1 of 3 planned launches, in 2 records"
    packed = tmp_path / "run.tar.gz"
    pack(interrupted.folder, packed)
    assert next_step(make_report(packed)).startswith("for 2 launches not run yet, on the node: mnb resume")


def test_another_node_is_named_before_torch_is_imported(
    interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # type: ignore[no-untyped-def]
    folder = Path(shutil.copytree(interrupted.folder, tmp_path / "copy"))
    read = json.loads((folder / "run.json").read_text())
    read["inventory"]["hostname"] = "elsewhere"
    (folder / "run.json").write_text(json.dumps(read))
    assert call(["resume", str(folder)]) == 2
    told = capsys.readouterr().err
    assert "hostname was elsewhere" in told
    assert "--accept-difference node" in told
    assert "importing torch" not in told


def test_resume_runs_what_has_no_valid_record_and_no_more(interrupted, resume_run) -> None:  # type: ignore[no-untyped-def]
    first = interrupted.records[0]
    finished = resume_run(interrupted.folder)
    good = [record for record in finished.records if record.success]
    assert first in good
    assert [(record.job_id, record.mnb.session, record.mnb.attempt) for record in good] == [
        ("0.0", 1, 1),
        ("1.0", 2, 2),
        ("2.0", 2, 1),
    ]
    assert {record.mnb.run_id for record in finished.records} == {interrupted.manifest.run_id}
    assert finished.manifest == interrupted.manifest
    later = finished.events[len(interrupted.events) :]
    assert kinds(later) == ["Session", "Resumed", "Attempt", "Recorded", "Attempt", "Recorded", "Finished"]
    assert later[1] == Resumed(missing=2)
    assert later[-1] == Finished(missing=0, failed=0)
    assert finished.outcome.failed == 0, "the report says so, and so does the exit code"
    summary = load(finished.folder)
    row = summary.tests["trial.steady"]
    assert (row.n, row.failures, row.failed) == (3, 0, ()), "an interruption says nothing about the node"
    assert "1 launch was interrupted and measured again: no failure" in summary.notes
    assert (summary.sessions, summary.starts) == (1, 2)
    strict = Rules(failure_rate=0.01, retries=0, resumes=0, sessions=3)
    rulings = {ruling.id: ruling for ruling in verify(interrupted.folder, strict).rulings}
    assert [rulings[rule].result for rule in ("R12", "R13", "R14")] == ["pass", "pass", "fail"]
    assert rulings["R14"].reasons == ("1 retries, but the rules allow 0", "1 resumes, but the rules allow 0")
    assert accused(interrupted.folder, failure_rate=None) == {}
    facts = verify(interrupted.folder, Rules()).facts
    assert facts["failures"].startswith("0 of 3 failed")
    assert facts["launches"] == "3 of 3 planned launches, in 4 records"
    assert facts["attempts"] == "4 attempts in the ledger: 0 failed, 1 interrupted; 0 without a record; 2 sessions"


def test_rules_that_no_resume_can_keep_are_told_before_it(
    interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # type: ignore[no-untyped-def]
    rules, folder = tmp_path / "rules.json", Path(shutil.copytree(interrupted.folder, tmp_path / "copy"))
    rules.write_text('{"name": "mine", "resumes": 1, "sessions": 2}')
    refuse_to_resume(load_rules(str(rules)), folder)
    rules.write_text('{"name": "mine", "resumes": 0, "sessions": 1, "failure_rate": 0.0}')
    next(folder.glob("trial.steady.J0.0.*.json")).unlink()
    before = (folder / "ledger.jsonl").read_bytes()
    assert call(["resume", str(folder), "--rules", str(rules)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[1].startswith("  R13 trial.steady.J0.0.")
    assert told[2:4] == ["  R14 1 resumes, but the rules allow 0", "  R14 2 sessions, but the rules allow 1"]
    assert (folder / "ledger.jsonl").read_bytes() == before


def test_resuming_a_finished_run_says_so_before_anything_starts(
    run_profile, resume_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    calls, git = tmp_path / "calls", tmp_path / "git"
    git.write_text(
        f"#!/bin/sh\necho >> {calls}\n"
        f'if [ "$(wc -l < {calls})" -eq 2 ]; then kill -TERM $PPID; exec sleep 5; fi\nexec {shutil.which("git")} "$@"\n'
    )
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    finished = run_profile(STEADY, tenants=1)
    assert (
        f"code and data were not checked after the work. To check them: mnb resume {finished.folder}" in finished.notes
    )
    assert type(resume_run(finished.folder).events[-2]) is CodeSeen
    before = {path.name: path.read_bytes() for path in finished.folder.iterdir() if path.is_file()}
    assert _resumed(finished.folder, tmp_path) == (0, "nothing left to do: 1 of 1 launch done\n")
    assert {path.name: path.read_bytes() for path in finished.folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(("given", "named"), [("mine", "--spool mine"), ("mine", ""), (None, "")])
def test_a_run_that_only_lacks_what_its_spool_holds_is_whole_before_anything_starts(
    run_profile,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    given: str | None,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk was full from the first record to the end. No spool but its own is taken for it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    finished = run_profile(STEADY, tenants=1, spool=given and tmp_path / given)
    spool = tmp_path / (given or f"mnb-spool-{finished.manifest.run_id}")
    ledger = finished.folder / "ledger.jsonl"
    spool.mkdir()
    before, lines = ledger.read_bytes(), ledger.read_bytes().splitlines(keepends=True)
    at = next(place for place, event in enumerate(finished.events) if isinstance(event, Recorded))
    ledger.write_bytes(b"".join(lines[:at]))
    (spool / "ledger.jsonl").write_bytes(b"".join(lines[at:]))
    for record in finished.folder.glob("trial.*.json"):
        record.rename(spool / record.name)
    (spool / "notes.txt").write_text("not mine")
    report = make_report(finished.folder)
    told = [(alarm.name, alarm.text) for alarm in alarms(report)]
    assert ("NOT SAVED", f"the results of 1 of 1 launches wait in {spool}") in told
    assert "INTERRUPTED" not in dict(told)
    assert next_step(report) == f"to bring back the results of 1 launch: mnb resume {finished.folder}"
    with pytest.raises(
        InputError, match=f"the results of 1 launch wait in {spool}. To bring them back, run mnb resume"
    ):
        pack(finished.folder, None)
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / "spool").mkdir()
    for other, why in (
        ("above", "contains 'spool', but no ledger.jsonl"),
        ("above/spool", f"are in {spool}. Leave out"),
    ):
        code, said = _resumed(finished.folder, tmp_path, "--spool", other)
        assert code == 2, said
        assert why in said
    brought, nothing = f"{spool}: 2 files brought back\n", "nothing left to do: 1 of 1 launch done\n"
    assert _resumed(finished.folder, tmp_path, *named.split()) == (0, brought + nothing)
    assert (ledger.read_bytes(), list(spool.iterdir())) == (before, [spool / "notes.txt"])
    assert _resumed(finished.folder, tmp_path) == (0, nothing)
    assert make_report(finished.folder).waiting is None


def _resumed(folder: Path, place: Path, *options: str) -> tuple[int, str]:
    """How resuming ends that may not import torch, and what it says."""
    blind = "import sys; sys.modules['torch'] = None; from milabench_ng.__main__ import main; main()"
    words = [sys.executable, "-c", blind, "resume", str(folder), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True)
    assert "1 of 1 launches" in done.stdout or done.returncode, done.stdout
    return done.returncode, done.stderr


def test_a_record_that_was_changed_or_cut_short_is_made_again(run_profile, resume_run) -> None:  # type: ignore[no-untyped-def]
    finished = run_profile(STEADY, tenants=1, repeat=2)
    one, other = sorted(finished.folder.glob("trial.*.json"))
    one.write_bytes(one.read_bytes()[:-100])
    other.unlink()
    one.rename(one.with_suffix(".cut"))  # set aside, so that all that is there can be read
    again = resume_run(finished.folder)
    assert [(record.job_id, record.mnb.attempt) for record in again.records] == [("0.0", 2), ("1.0", 2)]
    row = load(again.folder).tests["trial.steady"]
    assert [failed.cause for failed in row.failed] == ["missing", "missing"], "their records are gone: nothing was cut"
    assert other.name in " ".join(failed.detail for failed in row.failed)
    assert (row.n, row.failures, row.missing) == (4, 2, 0), "none is left to run"


@needs_two_cpus
def test_who_lost_a_neighbour_is_measured_again_with_it(run_profile, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """All attempts count, and only the last result of each launch does."""
    test = {"workload": f"{BROKEN}:fails_once", "arguments": {"marker": str(tmp_path / "marker")}}
    finished = run_profile({"once": test}, rule=AT_WORK, retry=2)
    causes = [record.mnb.failure and record.mnb.failure.cause for record in finished.records]
    assert sorted(causes, key=str) == [None, None, None, "exception"]
    (failed,) = [record for record in finished.records if not record.success]
    first = [record for record in finished.records if record.mnb.attempt == 1 and record.success]
    again = [record for record in finished.records if record.mnb.attempt == 2]
    assert [mark.kind for record in first for mark in record.mnb.marks].count("neighbours lost") == 1
    assert {record.job_id for record in again} == {failed.job_id, first[0].job_id}
    assert all(record.mnb.neighbours.alive_at_stop == 1 for record in again)
    assert len([event for event in finished.events if isinstance(event, Attempt)]) == 4
    row = load(finished.folder).tests["trial.once"]
    assert (row.n, row.failures, len(row.launches)) == (4, 1, 2)
    assert finished.outcome.failed == 1
    rulings = {ruling.id: ruling for ruling in verify(finished.folder, Rules(marks_refused=True, retries=2)).rulings}
    assert rulings["R22"].reasons
    assert not [why for why in rulings["R22"].reasons if "neighbours lost" in why]
    assert [rulings[rule].result for rule in ("R12", "R13", "R14", "R17")] == ["pass"] * 4
    assert accused(finished.folder, failure_rate=None, closed=False) == {}, "the workload is the tests' own"


def test_a_launch_that_always_fails_is_tried_as_often_as_asked(run_profile) -> None:  # type: ignore[no-untyped-def]
    finished = run_profile({"exits": {"workload": f"{BROKEN}:exits"}}, tenants=1, retry=1)
    assert [record.mnb.attempt for record in finished.records] == [1, 2]
    assert finished.events[-1] == Finished(missing=0, failed=1)


def test_attempts_that_left_nothing_count(interrupted, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As after SIGKILL: the ledger has the attempt, the folder has no record."""
    killed = tmp_path / "killed"
    killed.mkdir()
    lines = (interrupted.folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (killed / "ledger.jsonl").write_bytes(b"".join(lines[:5]))
    (killed / "run.json").write_bytes((interrupted.folder / "run.json").read_bytes())
    (first,) = interrupted.folder.glob("trial.steady.J0.0.*.json")
    (killed / first.name).write_bytes(first.read_bytes())
    row = load(killed).tests["trial.steady"]
    assert (row.n, row.failures, row.missing) == (3, 2, 2), "one of the missing was tried"
    (killed / first.name).rename(killed / "moved.txt")
    row = load(killed).tests["trial.steady"]
    assert (row.n, row.failures, row.missing) == (3, 3, 3)


def test_what_differs_is_refused_by_kind_unless_it_is_accepted(interrupted) -> None:  # type: ignore[no-untyped-def]
    then: Manifest = interrupted.manifest
    assert list(differences(then, then)) == []
    replace = msgspec.structs.replace
    inventory = replace(then.inventory, hostname="other")
    others: tuple[dict[str, object], ...] = ({"cpus": (0, 1, 99)}, {"cache": (CachePart(0, 0x1F),)})
    changes = {
        "node": replace(then, inventory=inventory),
        "software": replace(then, software={**then.software, "torch": "9.9"}),
        "isolation": replace(then, fence=replace(then.fence, tier="none")),
    }
    for kind, now in changes.items():
        (found,) = differences(then, now)
        assert found.kind == kind
        with pytest.raises(InputError, match=f"--accept-difference {kind}"):
            check_same(then, now, [other for other in changes if other != kind])
        assert check_same(then, now, [kind]) == (found,)
    for other in others:
        shares = {name: replace(share, **other) for name, share in then.shares.items()}
        assert {one.kind for one in differences(then, replace(then, shares=shares))} == {"isolation"}
    software = SessionDifference("software", f"torch was {then.software['torch']} and is 9.9")
    assert tuple(differences(then, changes["software"])) == (software,)
    first, later = ({"acme:probe": replace(read_builtin()["toy_reg"], most_items=most)} for most in ("8", "9"))
    (changed,) = differences(replace(then, declared=first), replace(then, declared=later))
    assert str(changed) == "software: the declaration of workload acme:probe has changed"


def test_another_plan_is_refused_whatever_is_accepted(interrupted) -> None:  # type: ignore[no-untyped-def]
    then: Manifest = interrupted.manifest
    replace, (batch, *others) = msgspec.structs.replace, then.plan.batches
    launch = replace(batch.launches[0], arguments=batch.launches[0].arguments | {"batch_size": 3})
    changed = replace(then.plan, batches=(*others, replace(batch, launches=(launch,))))
    for plan, why in ((changed, "steady: batch_size was .* and is 3"), (replace(then.plan, batches=()), "not planned")):
        with pytest.raises(InputError, match=why):
            check_plan(then.plan, plan)
    gpu = replace(then.plan.devices[0], kind="gpu", uuid="GPU-1", name="NVIDIA H200")
    with pytest.raises(InputError, match=r"uses 1 CPU partition .* would use 1 x NVIDIA H200"):
        check_same(then, replace(then, plan=replace(then.plan, devices=(gpu,))), ["node", "software", "isolation"])


def test_a_first_line_and_a_session_are_in_every_ledger(interrupted) -> None:  # type: ignore[no-untyped-def]
    started, session = interrupted.events[:2]
    assert isinstance(started, Started)
    assert isinstance(session, Session)
    assert (started.launches, session.number) == (3, 1)
    assert session.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    records = [event for event in interrupted.events if isinstance(event, Recorded)]
    assert {event.file for event in records} <= {path.name for path in interrupted.folder.glob("trial.*.json")}


def test_a_signal_to_all_processes_of_a_job_is_an_interruption(run_profile) -> None:  # type: ignore[no-untyped-def]
    """As `scancel` and the end of a job's time send it: the workers die of it a moment before they could be told."""
    sent: list[int] = []

    workers: list[int] = []

    def act(event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState):
            workers.extend(event.rank_pids)
        if isinstance(event, Slices) and not sent:
            server = int(Path(f"/proc/{workers[-1]}/stat").read_text().rpartition(")")[2].split()[1])
            sent.extend((workers[-1], server, os.getpid()))
            for pid in sent:
                os.kill(pid, signal.SIGTERM)

    finished = run_profile(STEADY, act, own_server=True, rule=AT_WORK, tenants=1, repeat=2)
    (record,) = finished.records
    assert record.mnb.failure.cause == "interrupted"
    assert record.mnb.ranks[0].slices
    assert finished.events[-2:] == (Interrupted(by="SIGTERM"), Finished(missing=2, failed=0))


def test_a_second_interrupt_ends_a_run_that_does_not_end(tmp_path: Path) -> None:
    profile, folder = tmp_path / "trial.json", tmp_path / "results"
    profile.write_text(json.dumps({"hangs": {"workload": f"{BROKEN}:hangs", "arguments": {"after": 5}}}))
    command = [sys.executable, "-m", "milabench_ng", "jobs", str(profile), "-o", str(folder), "--tenants", "1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, "--window", "0.5"], env=environ, stderr=subprocess.PIPE, text=True)
    log = folder / "logs" / "trial.hangs.J0.0.log"
    while not log.exists() or "hanging" not in log.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(SAME_S + 0.5)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert f"To go on: mnb resume {folder}" in rest
    chain = check_chain((folder / "ledger.jsonl").read_bytes())
    assert [event.label for event in lost_attempts(chain.events)] == ["trial.hangs"]
