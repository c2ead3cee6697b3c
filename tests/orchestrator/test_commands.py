"""`mnb jobs`, `run` and `rerun` as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.records.ledger import Finished, Interrupted, Resumed, check_chain
from milabench_ng.report.summary.folder import load
from milabench_ng.report.verification.rules import Rules
from milabench_ng.report.verification.verify import verify

ROOT = Path(__file__).parents[2]
QUICK = ["--window", "0.5", "--tenants", "1"]


def mnb(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command; it must not have imported torch in its own process."""
    code = (
        "import sys; from milabench_ng.cli import call; status = call(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MNB_DATAROOT": str(cwd / "data")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of this file run."""
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def record(folder: Path) -> Path:
    """A record made by `mnb run`."""
    done = mnb("run", "toy_reg", "-o", "toy.json", *QUICK, "--", "--batch-size", "32", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "toy.json"


def test_jobs_prints_report_folder_and_next_command(folder: Path) -> None:
    profile = folder / "trial.json"
    profile.write_text(json.dumps({"toy_reg": {"workload": "toy_reg"}}))
    done = mnb("jobs", profile, "-o", "out", *QUICK, "--isolation", "none", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any("toy_reg" in line and "samples" in line for line in lines)
    assert f"results: {folder / 'out'}" in lines
    assert any(line.startswith("next:") for line in lines)
    assert lines[-1].startswith("NOT ISOLATED")
    assert json.loads((folder / "out" / "run.json").read_text())["job_id"] is None


def test_jobs_in_three_sessions_begins_afresh_for_each(folder: Path) -> None:
    done = mnb("jobs", folder / "trial.json", "-o", "three", "--sessions", "3", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    made = [json.loads(path.read_text()) for path in (folder / "three").glob("trial.*.json")]
    assert sorted((one["mnb"]["launch"]["run"], one["mnb"]["session"]) for one in made) == [(0, 1), (1, 2), (2, 3)]
    assert len({one["mnb"]["isolation"]["0"]["group"] for one in made}) == 3, "each has its own fence"
    events = check_chain((folder / "three" / "ledger.jsonl").read_bytes()).events
    ends = [event.missing for event in events if isinstance(event, Finished)]
    assert ends == [2, 1, 0]
    assert not any(isinstance(event, Resumed | Interrupted) for event in events), "nothing was interrupted"
    summary = load(folder / "three")
    assert "3 sessions, one after the other" in summary.notes
    assert summary.tests["trial.toy_reg"].sessions == {"0": 1, "1": 2, "2": 3}
    rulings = {one.id: one for one in verify(folder / "three", Rules(repeat=3, least_sessions=4, resumes=0)).rulings}
    assert rulings["R11"].reasons == ("trial.toy_reg: it ran in 3 of 4 sessions",)
    assert rulings["R14"].result == "pass"


def test_run_writes_one_record(record: Path) -> None:
    made = json.loads(record.read_text())
    assert made["success"]
    assert made["mnb"]["launch"]["overrides"] == ["batch_size"]
    assert made["call"]["arguments"]["batch_size"] == 32
    assert ("options overridden", "batch_size") in [(mark["kind"], mark["what"]) for mark in made["mnb"]["marks"]]


def test_rerun_repeats_a_record(record: Path, folder: Path) -> None:
    done = mnb("rerun", record, "-o", "again", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    (again,) = [path for path in (folder / "again").glob("*.json") if path.name != "run.json"]
    made = json.loads(again.read_text())
    assert made["call"]["arguments"] == json.loads(record.read_text())["call"]["arguments"]


def test_classic_data_is_named_and_marked_and_a_rerun_reads_it_again(folder: Path) -> None:
    flags = ["--data-scale", "0.0005", "-d", "data", *QUICK]
    options = ["--batch-size", "8", "--workers", "1"]
    done = mnb("run", "loader", "--classic-data", "-o", "noise.json", *flags, "--", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    done = mnb("rerun", "noise.json", "-o", "noise", *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    (again,) = [path for path in (folder / "noise").glob("*.json") if path.name != "run.json"]
    for path in (folder / "noise.json", again):
        ours = json.loads(path.read_text())["mnb"]
        assert (ours["data"]["name"], ours["data"]["kind"]) == ("imagenet-classic", "classic")
        assert ("classic data", "imagenet-classic") in [(mark["kind"], mark["what"]) for mark in ours["marks"]]
    assert [path.name for path in (folder / "data" / "scale-0.0005").iterdir()] == ["ImageNet-classic"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["jobs", "nowhere.json"], 2, ["nowhere.json", "no such file"]),
        (["run", "toy_regg"], 2, ["toy_regg", "toy_lstm, toy_reg,"]),
        (["run", "toy_reg", "--", "--batchsize", "3"], 2, ["--batchsize", "--batch-size int >= 1 (default 256)"]),
        (["run", "toy_reg", "--", "--batch-size", "many"], 2, ["many", "int"]),
        (["run", "toy_reg", "--gpus", "7"], 2, ["--gpus 7"]),
        (["run", "toy_reg", "--tenants", "1000"], 2, ["--tenants 1000"]),
        (["run", "toy_reg", "-o", "data"], 2, ["data", "name a new folder"]),
        (["rerun", "trial.json"], 2, ["trial.json", "not a record"]),
        (["run", "toy_reg", "--isolation", "strong"], 2, ["strong"]),
    ],
)
def test_bad_input_is_explained(folder: Path, arguments: list[str], code: int, words: list[str]) -> None:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "something").touch()
    (folder / "trial.json").write_text("{}")
    done = mnb(*arguments, cwd=folder)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr + done.stdout
