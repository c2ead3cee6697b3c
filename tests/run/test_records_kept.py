"""Whole runs on disks that others fill, and in folders that others change: every record is kept."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.cli import call, run_and_report
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Profile
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.records.ledger import Attempt, Damaged, Recorded, check_chain
from milabench_ng.records.names import EVENTS, LEDGER, MANIFEST, RECORD_NAME, is_result_file
from milabench_ng.report.reporting import make_report
from milabench_ng.run.events.run_events import BatchBegins, LaunchState
from milabench_ng.run.persistence import kept
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify
from tests.run.conftest import BROKEN, STEADY, Runner
from tests.run.small_disks import fill, small_disk
from tests.run.test_machinery import once

ROOT = Path(__file__).parents[2]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 2 MiB for results and temporary files."""
    with small_disk(tmp_path, "2m") as place:
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        yield place


@pytest.mark.root
def test_a_disk_with_everything_on_it_may_be_full_for_the_rest_of_a_run(run_profile: Runner, disk: Path) -> None:
    act = once(LaunchState, lambda _: fill(disk), state="working")
    finished = run_profile(STEADY, act, tenants=1, repeat=2, outdir=disk / "results")
    assert [record.success for record in finished.records] == [True, True]
    assert (finished.outcome.missing, finished.outcome.failed) == (0, 0)
    assert "could not be reserved for the next results" in "".join(finished.notes)
    left = {str(path.relative_to(disk / "results")) for path in disk.rglob("results/**/*") if path.is_file()}
    assert sorted(name for name in left if not is_result_file(name)) == [EVENTS]
    assert list(disk.glob("mnb-*")) == []


@pytest.mark.root
def test_a_run_that_can_write_nowhere_prints_its_records_and_takes_them_back(tmp_path: Path) -> None:
    """A limit on the size of files, set while it works, holds for every disk."""
    profile, folder, saved = tmp_path / "trial.json", tmp_path / "results", tmp_path / "saved.txt"
    profile.write_text(f'{{"steady": {{"workload": "{BROKEN}:steady"}}}}')
    command = [sys.executable, "-m", "milabench_ng", "jobs"]
    new = [str(profile), "-o", str(folder), "--tenants", "1", "--repeat", "2", "--window", "0.5"]
    # No byte code: under the limit, Python would leave half of it for what it imports late.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen([*command, *new], env=environ, stderr=subprocess.PIPE, text=True)
    while not (folder / LEDGER).exists() or not check_chain((folder / LEDGER).read_bytes()).events[5:]:
        assert process.poll() is None
        time.sleep(0.05)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
    assert process.stderr is not None
    said = ""
    while "keeps retrying" not in said:
        said += process.stderr.readline()
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in said + rest
    saved.write_text(said + rest)
    before = (folder / LEDGER).read_bytes()
    done = subprocess.run(
        [*command, "--resume", str(folder), "--spool", str(saved)], env=environ, capture_output=True, text=True
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    after = (folder / LEDGER).read_bytes()
    assert after.startswith(before)
    events = check_chain(after).events
    assert [event.number for event in events if isinstance(event, Attempt)] == [1, 1], "nothing had to be done again"
    assert {event.file for event in events if isinstance(event, Recorded)} == {
        path.name for path in folder.iterdir() if RECORD_NAME.fullmatch(path.name)
    }


@pytest.mark.root
def test_a_record_whose_file_cannot_be_written_is_not_thrown_away(disk: Path, tmp_path: Path) -> None:
    fill(disk)
    os.truncate(disk / "hog", os.path.getsize(disk / "hog") - 8192)  # room for a file, and not for a record
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "milabench_ng", "run", "toy_reg", "-o", str(disk / "toy.json"), "--tenants", "1"]
    done = subprocess.run([*command, "--window", "0.5"], env=environ, capture_output=True, text=True)
    (record,) = tmp_path.glob("mnb-run-*/results/*.J0.0.*.json")
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"mnb: -o {disk / 'toy.json'}: No space left on device; the record is in {record.parent}\n"
    )


def test_a_record_survives_an_error_of_mnb_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(request: RunRequest, *_: object) -> None:
        request.outdir.mkdir()
        (request.outdir / "one.json").write_bytes(b"1")
        raise ZeroDivisionError

    monkeypatch.setattr(run_and_report, "jobs", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    request = RunRequest(
        profile=Profile("run", {}, "", "here"),
        dataroot=tmp_path,
        outdir=tmp_path / "toy.json",
        isolation="none",
    )
    with pytest.raises(ZeroDivisionError):
        run_and_report.execute_into_file(request)
    assert [path.read_bytes() for path in tmp_path.glob("mnb-run-*/results/*")] == [b"1"]


def damage(folder: Path) -> None:
    """What somebody may do to a folder."""
    os.truncate(folder / LEDGER, 0)
    (folder / MANIFEST).unlink()
    next(folder.glob("trial.*.json")).write_text("{}")


def test_a_folder_that_is_changed_under_a_live_run_is_whole_at_its_end(
    run_profile: Runner, resume_run: Runner, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    act = once(BatchBegins, lambda _: damage(folder), number=1)
    finished = run_profile(STEADY, act, tenants=1, repeat=2, outdir=folder)
    assert (finished.outcome.missing, finished.outcome.failed, len(finished.records)) == (0, 0, 2)
    (record,) = folder.glob("trial.*.json.damaged-1")
    damaged = {event.file: event for event in finished.events if isinstance(event, Damaged)}
    assert damaged.keys() == {LEDGER, MANIFEST, record.name.removesuffix(".damaged-1")}
    assert all(event.restored for event in damaged.values())
    assert record.read_text() == "{}"
    assert any("changed by another program" in note for note in finished.notes)
    assert [
        one.id for one in verify(folder, Rules()).rulings if one.id in ("R12", "R13") and one.result == "fail"
    ] == []
    notes = make_report(folder).summary.notes
    assert any("changed or removed by another program during the run" in note for note in notes)
    again = resume_run(folder)
    assert (again.outcome.missing, len(again.records)) == (0, 2)


def test_a_record_that_cannot_be_written_again_is_measured_again(
    run_profile: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "COPIES_BYTES", 2000)  # the manifest, say
    folder = tmp_path / "results"
    act = once(BatchBegins, lambda _: next(folder.glob("trial.*.json")).unlink(), number=1)
    finished = run_profile(STEADY, act, tenants=1, repeat=2, outdir=folder)
    assert sorted((record.job_id, record.mnb.attempt) for record in finished.records) == [("0.0", 2), ("1.0", 1)]
    (event,) = [event for event in finished.events if isinstance(event, Damaged)]
    assert (event.aside, event.restored) == (None, False)
    assert any("1 record could not be restored: mnb repeats the launches" in note for note in finished.notes)


def test_a_ledger_that_was_emptied_or_cut_beside_records_is_refused(
    run_profile: Runner, resume_run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = run_profile(STEADY, tenants=1)
    ledger = finished.folder / LEDGER
    for lines in (0, 3):
        cut = b"".join(ledger.read_bytes().splitlines(keepends=True)[:lines])
        before, _ = ledger.read_bytes(), ledger.write_bytes(cut)
        with pytest.raises(InputError, match=r"ledger.jsonl: has no line for 1 record .* Restore it, or"):
            resume_run(finished.folder)
        assert ledger.read_bytes() == cut
        assert call(["bundle", str(finished.folder), "-o", str(finished.folder.parent / f"{lines}.tar.gz")]) == 0
        assert "breaks R13" in capsys.readouterr().out
        ledger.write_bytes(before)


def test_more_records_than_launches_are_not_all_valid(run_profile: Runner) -> None:
    finished = run_profile(STEADY, tenants=1)
    (record,) = finished.folder.glob("trial.*.json")
    again = json.loads(record.read_bytes())
    again["mnb"]["attempt"] = 2
    record.with_name(f"{record.name[:-11]}000001.json").write_text(json.dumps(again))
    (valid,) = (answer for answer in first_screen(make_report(finished.folder)).answers if answer.name == "Valid")
    assert valid.parts[:2] == ("1 of 1 launches", "1 more records than launches")
