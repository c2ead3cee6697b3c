"""What needs no torch is refused before torch is imported, which takes many seconds, and before data are made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.fence.claims import Claim, resources

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
    profile: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert refused(["jobs", profile, "-o", str(tmp_path / "full")], capfd)[0] == 2
    for command in (["jobs", profile, "-o", "/proc/results"], ["run", "vae", "-o", "/proc/record.json"]):
        code, said = refused(command, capfd)
        assert code == 2
        assert "/proc is not writable (No such file or directory). Name another folder" in said
    assert os.listdir(tmp_path / "full") == ["mine.txt"]


def test_cpus_that_another_run_has(profile: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Claim(resources(range(os.cpu_count() or 1), ()), "20260101T000000-other"):
        code, said = refused(["jobs", profile, "-o", str(tmp_path / "results")], capfd)
    assert code == 3
    assert "run 20260101T000000-other" in said
    assert not (tmp_path / "results").exists()


def test_the_tests_of_a_profile_are_listed_without_torch(profile: str, capfd: pytest.CaptureFixture[str]) -> None:
    for form in ("table", "csv", "markdown"):
        assert call(["list", profile, "--format", form]) == 0
        out, said = capfd.readouterr()
        assert "two" in out
        assert IMPORTS not in said
