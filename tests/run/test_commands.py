"""`mnb jobs`, `run` and `rerun` as a user calls them."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.records.ledger import Finished, Interrupted, Resumed, check_chain
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify
from tests.one_server import Done, OneServer
from tests.run.conftest import in_short_slices

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
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


Mnb = Callable[..., Done]


@pytest.fixture
def here(folder: Path, one_server: OneServer) -> Mnb:
    """Run the command in this process and with the tests' worker server, where neither is looked at."""
    return functools.partial(one_server.mnb, cwd=folder)


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


def test_jobs_ends_with_verdict_score_validity_and_what_to_do(folder: Path, here: Mnb) -> None:
    profile = folder / "trial.json"
    profile.write_text(json.dumps({"toy_reg": in_short_slices({"workload": "toy_reg"})}))
    done = here("jobs", str(profile), "-o", "out", *QUICK, "--isolation", "none")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said = "expected warnings: NOT ISOLATED: isolation none; averaging window shortened to 0.5 s"
    assert said in done.stderr, "before the first batch"
    assert done.stderr.index(said) < done.stderr.index("[1/1]")
    assert done.stderr.index("Ctrl-C interrupts the current launch group") < done.stderr.index("[1/1]")
    summary = load(folder / "out")
    marks = {mark.kind for row in summary.tests.values() for mark in row.marks}
    assert {"not isolated", "window shortened"} <= marks
    assert len(lines) <= 12
    assert lines[0].startswith("Verdict  NOT COMPARABLE: ")
    assert any("NOT ISOLATED" in line for line in lines)
    assert any(re.match(r"Valid    1 of 1 launches   0 failed   isolation none", line) for line in lines)
    assert lines[-3:] == [
        f"results  {folder / 'out'}",
        f"next     for a comparison: mnb report {folder / 'out'} --compare OTHER",
        f"details  mnb report {folder / 'out'} --full",
    ]
    assert json.loads((folder / "out" / "run.json").read_text())["job_id"] is None


def test_jobs_in_two_sessions_begins_afresh_for_each(folder: Path, here: Mnb) -> None:
    done = here("jobs", "trial.json", "-o", "two", "--sessions", "2", "--session-gap", "1s", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "UTC, in 1.0 s; to start it at another time, press Ctrl-C and run" in done.stdout
    assert re.search(r"session 2 begins \d.* after the last launch of the one before: they count as one", done.stderr)
    made = [json.loads(path.read_text()) for path in (folder / "two").glob("trial.*.json")]
    assert sorted((one["mnb"]["launch"]["run"], one["mnb"]["session"]) for one in made) == [(0, 1), (1, 2)]
    assert len({one["mnb"]["isolation"]["0"]["group"] for one in made}) == 2, "each has its own fence"
    events = check_chain((folder / "two" / "ledger.jsonl").read_bytes()).events
    ends = [event.missing for event in events if isinstance(event, Finished)]
    assert ends == [1, 0]
    told = [json.loads(line)["event"] for line in (folder / "two" / "events.jsonl").read_text().splitlines()]
    assert [bool(one["continues_utc"]) for one in told if one["type"] == "RunEnds"] == [True, False]
    assert not any(isinstance(event, Resumed | Interrupted) for event in events), "nothing was interrupted"
    summary = load(folder / "two")
    assert summary.merged_sessions == "2 sessions count as one: they are less than 6 h apart"
    assert summary.tests["trial.toy_reg"].sessions == {}
    demanded = Rules(repeat=2, least_sessions=2, resumes=0)
    rulings = {one.id: one for one in verify(folder / "two", demanded).rulings}
    assert rulings["R11"].reasons == ("trial.toy_reg: it ran in 1 of 2 sessions that are 6 h apart",)
    assert rulings["R14"].result == "pass"
    a_second = msgspec.structs.replace(demanded, session_gap_h=1 / 3600)
    assert {one.id: one for one in verify(folder / "two", a_second).rulings}["R11"].result == "pass"


def test_run_writes_one_record(record: Path) -> None:
    made = json.loads(record.read_text())
    assert made["success"]
    assert made["mnb"]["launch"]["overrides"] == ["batch_size"]
    assert made["call"]["arguments"]["batch_size"] == 32
    assert ("options overridden", "batch_size") in [(mark["kind"], mark["what"]) for mark in made["mnb"]["marks"]]


def test_rerun_repeats_a_record(record: Path, folder: Path, here: Mnb) -> None:
    done = here("rerun", str(record), "-o", "again", *QUICK)
    assert done.returncode == 0, done.stderr
    (again,) = [path for path in (folder / "again").glob("*.json") if path.name != "run.json"]
    made = json.loads(again.read_text())
    before = json.loads(record.read_text())
    assert made["call"]["arguments"] == before["call"]["arguments"]
    assert made["mnb"]["launch"]["test"] == before["mnb"]["launch"]["test"], "so that reports compare both"


def test_classic_data_is_named_and_marked_and_a_rerun_reads_it_again(folder: Path, here: Mnb) -> None:
    flags = ["--data-scale", "0.0005", "-d", "data", *QUICK]
    options = ["--batch-size", "8", "--workers", "1"]
    done = here("run", "loader", "--classic-data", "-o", "noise.json", *flags, "--", *options)
    assert done.returncode == 0, done.stderr
    done = here("rerun", "noise.json", "-o", "noise", *flags)
    assert done.returncode == 0, done.stderr
    (again,) = [path for path in (folder / "noise").glob("*.json") if path.name != "run.json"]
    for path in (folder / "noise.json", again):
        ours = json.loads(path.read_text())["mnb"]
        assert (ours["data"]["name"], ours["data"]["kind"]) == ("imagenet-classic", "classic")
        assert ("classic data", "imagenet-classic") in [(mark["kind"], mark["what"]) for mark in ours["marks"]]
    assert [path.name for path in (folder / "data" / "scale-0.0005").iterdir()] == ["ImageNet-classic"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["toy_regg"], ["toy_regg"]),
        (["toy_reg", "--", "--batchsize", "3"], ["--batchsize"]),
        (["toy_reg", "-o", "data"], ["data", "Name a new folder"]),
    ],
)
def test_what_only_the_worker_server_can_refuse_is_explained(
    folder: Path, here: Mnb, arguments: list[str], words: list[str]
) -> None:
    """test_commands_table has what is refused before."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "something").touch()
    done = here("run", *arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr + done.stdout
