"""What needs no torch is refused before torch is imported, which takes many seconds, and before data are made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.fence.claims import Claim, resources
from milabench_ng.run import jobs

IMPORTS = "importing torch"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    (tmp_path / "small.json").write_text(json.dumps({"one": {"workload": "vae"}, "two": {"workload": "vae"}}))
    return str(tmp_path / "small.json")


def refused(command: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and what was said, without torch."""
    code = call(command)
    said = capfd.readouterr().err
    assert IMPORTS not in said
    return code, said


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_test_that_there_is_not(profile: str, dry: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    code, said = refused(["jobs", profile, "--name", "tow", *dry], capfd)
    assert code == 2
    assert "no test 'tow' (did you mean 'two'?)" in said


def test_a_workload_that_there_is_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({"one": {"workload": "vea"}}))
    for command in (["jobs"], ["list"]):
        code, said = refused([*command, str(tmp_path / "odd.json")], capfd)
        assert code == 2
        assert "odd.json: test 'one': unknown workload 'vea' (did you mean 'vae'?)" in said


def test_a_folder_that_holds_results_or_cannot_be_made(
    profile: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as where:
        where.setenv("MNB_OUTROOT", "/proc")
        code, said = refused(["jobs", profile], capfd)
        assert code == 2
        assert said.startswith("mnb: MNB_OUTROOT=/proc: not writable (it takes no files). Set another folder")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert refused(["jobs", profile, "-o", str(tmp_path / "full")], capfd)[0] == 2
    for command in (["jobs", profile, "-o", "/proc/results"], ["run", "vae", "-o", "/proc/record.json"]):
        code, said = refused(command, capfd)
        assert code == 2
        assert "/proc is not writable (it takes no files). Name another folder" in said
    taken = tmp_path / "full" / "mine.txt"
    assert refused(["jobs", profile, "-o", str(taken)], capfd) == (
        2,
        f"mnb: -o {taken}: this is not a folder. Name another one\n",
    )
    assert f"-o {taken}/new: {taken} is not a folder" in refused(["jobs", profile, "-o", f"{taken}/new"], capfd)[1]
    assert os.listdir(tmp_path / "full") == ["mine.txt"]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/spool", "/proc is not writable (it takes no files). Name another folder"),
        ("small.json", "this is not a folder. Name another one"),
    ],
)
def test_a_spool_folder_that_takes_no_results(
    profile: str, place: str, why: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(profile).parent)
    for command in (["jobs", profile], ["jobs", profile, "--dry-run"], ["run", "vae"]):
        code, said = refused([*command, "--spool", place], capfd)
        assert code == 2
        assert said.startswith("mnb: --spool /")
        assert why in said


@pytest.mark.root
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_disk_too_small_for_one_launch_group(
    profile: str, dry: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "mnb-test", place], check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        code, said = refused(["jobs", profile, "-o", str(place / "results"), "--tenants", "2", *dry], capfd)
        assert code == 2
        assert "results: No space left on device. Results of 2 tenants need at least 512.0 KiB there. Free some" in said
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)


def test_cpus_that_another_run_has(profile: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Claim(resources(range(os.cpu_count() or 1), ()), "20260101T000000-other"):
        code, said = refused(["jobs", profile, "-o", str(tmp_path / "results")], capfd)
    assert code == 5
    assert "run 20260101T000000-other" in said
    assert not (tmp_path / "results").exists()


def test_cpus_are_claimed_before_the_work_begins(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second run that begins while this one imports torch, or reads data, is refused at once."""

    def begin(*_: object) -> None:
        Claim(resources(range(os.cpu_count() or 1), ()), "second")

    monkeypatch.setattr(jobs, "serving", begin)
    code, said = refused(["jobs", profile, "-o", str(tmp_path / "results")], capfd)
    assert code == 5
    assert f"(pid {os.getpid()}) uses CPUs" in said


def test_the_tests_of_a_profile_are_listed_without_torch(profile: str, capfd: pytest.CaptureFixture[str]) -> None:
    for form in ("table", "csv", "markdown"):
        assert call(["list", profile, "--format", form]) == 0
        out, said = capfd.readouterr()
        assert "two" in out
        assert IMPORTS not in said


def test_a_workload_that_no_package_here_can_have(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = refused(["run", "nowhere.at:all"], capfd)
    assert code == 2
    assert said.startswith("mnb: workload 'nowhere.at:all': there is no package 'nowhere' for ")
    (tmp_path / "own.json").write_text(json.dumps({"one": {"workload": "nowhere.at:all"}}))
    code, said = refused(["jobs", str(tmp_path / "own.json")], capfd)
    assert code == 2
    assert "own.json: test 'one': workload 'nowhere.at:all': there is no package 'nowhere'" in said


def test_a_single_run_of_what_is_no_workload(capfd: pytest.CaptureFixture[str]) -> None:
    assert refused(["run", "vea"], capfd) == (
        2,
        "mnb: unknown workload 'vea' (did you mean 'vae'?). For your own, use package.module:function\n",
    )
    assert refused(["run", "quick"], capfd) == (2, "mnb: quick is a profile. Run it with: mnb jobs quick\n")


@pytest.mark.parametrize(
    ("asked", "why"),
    [(["--name", "tow"], "no test 'tow' (did you mean 'two'?)"), (["--data-scale", "2"], "at most 1, got 2")],
)
def test_data_that_cannot_be_meant(profile: str, asked: list[str], why: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = refused(["prepare", profile, *asked], capfd)
    assert code == 2
    assert why in said


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            ["--repeat", "200", "--sessions", "200"],
            "--repeat 200 --sessions 200: 40,000 repeats in all. The limit is 10,000",
        ),
        (["--for", "0"], "--for: expected a duration above 0, got '0'"),
        (["--for=-5min"], "--for: expected a duration above 0, got '-5min'"),
        (["--for", "5"], "--for: expected a duration with its unit (s, min or h), got '5'"),
        (["--for", "30min", "--", "--max-seconds", "60"], "--for asks for 1800 s of work, and its max_seconds ends it"),
        (["--total-limit", "5"], "its total time limit of 5 s is shorter than its work of"),
    ],
)
def test_numbers_that_no_run_can_have(
    profile: str, asked: list[str], why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(["jobs", profile, "-o", str(tmp_path / "made"), *asked], capfd)
    assert code == 2
    assert why in said


def test_an_unknown_command_imports_no_other() -> None:
    code = (
        "import sys; from milabench_ng.cli import call; code = call(['doctr'])\n"
        "print(code, [name for name in sys.modules if name.startswith('milabench_ng.cli.') and name[17:] in "
        "('report', 'jobs', 'fleet', 'doctor')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"
    assert done.stderr == "mnb: unknown command 'doctr' (did you mean 'doctor'?). See mnb --help\n"
