"""``mnb jobs --unfenced-too`` to its end, with runs that are made up: which two are asked for, and what is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import make_records
import pytest
import tampering

from milabench_ng.cli import call, unfenced
from milabench_ng.composing import make_plan
from milabench_ng.errors import InputError
from milabench_ng.orchestrator.planning.request import RunRequest
from milabench_ng.plan import Device, Launch, ResolvedOptions
from milabench_ng.profile import build_profile

PROFILE = {
    "alone": {"workload": "vae", "company": "none"},
    "beside": {"workload": "vae", "company": ["noise"]},
    "noise": {"workload": "loader", "role": "company"},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """The requests in the order in which they ran. Neighbours cost twice as much without the fence."""
    made: list[RunRequest] = []

    def ran(request: RunRequest, _: Path | None) -> int:
        made.append(request)
        profile = build_profile("tiny", PROFILE, request.profile_text, "tiny.json")
        options = {
            name: ResolvedOptions(make_records.arguments_of(test.workload)) for name, test in profile.tests.items()
        }
        devices = [Device(index=index, kind="cpu") for index in range(2)]
        cost = 1.25 if request.isolation == "full" else 2.5

        def rate(launch: Launch, _: int) -> float:
            return 10_000.0 * (1 / cost if launch.test == "tiny.beside" else 1.0) * 0.99**launch.run

        make_records.write_run(request.outdir, make_plan(profile, options, devices, request.repeat), rate)
        if request.isolation == "none":
            tampering.records(tampering.fence(tier="none"))(request.outdir)
            tampering.rehash(request.outdir)
        return 0

    monkeypatch.setattr(unfenced, "execute", ran)
    return made


def jobs(folder: Path) -> tuple[str, ...]:
    (folder / "tiny.json").write_text(json.dumps(PROFILE))
    return ("jobs", str(folder / "tiny.json"), "--repeat", "3", "--unfenced-too", "-o", str(folder / "out"))


def test_both_halves_run_and_the_command_that_is_named_tells_the_worth(
    tmp_path: Path, asked: list[RunRequest], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(jobs(tmp_path)) == 0
    assert [(one.isolation, one.outdir.name, one.repeat) for one in asked] == [
        ("full", "out", 3),
        ("none", "out-unfenced", 3),
    ]
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("fence:")]
    program, *report = shlex.split(line.removeprefix("fence:"))
    assert program == "mnb"
    assert call(report) == 0
    assert "worth 2.00 x" in capfd.readouterr().out
    assert call([*report, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["fence"]["worth"]["value"] == pytest.approx(2.0, rel=1e-3)
    assert call([*report, "--html", str(tmp_path / "page.html")]) == 0
    assert "With and without the fence" in (tmp_path / "page.html").read_text()


def test_after_a_first_half_that_did_not_end_there_is_no_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    halves = []
    monkeypatch.setattr(unfenced, "execute", lambda request, _: halves.append(request.isolation) or 130)
    assert call(jobs(tmp_path)) == 130
    assert halves == ["full"]
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("fence:")]
    assert line.endswith(f"--isolation none -o {tmp_path}/out-unfenced instead of --unfenced-too"), (
        "nobody else says so"
    )


def test_of_a_first_half_that_was_refused_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unfenced, "execute", lambda *_: 3)
    assert call(jobs(tmp_path)) == 3
    assert capfd.readouterr().out == ""


def test_failed_launches_of_one_half_are_the_exit_code_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unfenced, "execute", lambda request, _: int(request.isolation == "full"))
    assert call(jobs(tmp_path)) == 1
    assert "fence:" in capfd.readouterr().out


def test_a_folder_that_is_taken_is_refused_before_anything_runs(tmp_path: Path, asked: list[RunRequest]) -> None:
    taken = tmp_path / "out-unfenced"
    taken.mkdir()
    (taken / "run.json").write_text("{}")
    assert call(jobs(tmp_path)) == InputError.exit_code
    assert asked == []
