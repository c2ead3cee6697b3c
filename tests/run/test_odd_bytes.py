"""Bytes that are not UTF-8: refused in names before work, and escaped in what a record has to hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.run.execution.environment import worker_environment
from tests.run.conftest import BROKEN, Runner

ROOT = Path(__file__).parents[2]
BYTES = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("option", ["-o", "-d", "--spool", "--nonce", "the current folder"])
def test_bytes_that_are_not_utf8_are_refused_before_work(tmp_path: Path, option: str) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(odd)
    words: list[str | bytes] = ["quick", "--name", "toy_reg"]
    here = odd if option == "the current folder" else tmp_path
    words += [option, odd] if option.startswith("-") else ["-o", str(tmp_path / "results")]
    command = [sys.executable, "-m", "milabench_ng", "jobs", *words]
    done = subprocess.run(
        command, cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"mnb: {option} " in done.stderr
    assert r"caf\xe9: contains bytes that are not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / BYTES]
    assert os.listdir(odd) == []


def test_a_variable_that_is_not_utf8_is_passed_on_escaped(run_profile: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_environment({"MNB_X": BYTES, f"LD_{BYTES}": ""}, {}) == (
        {"MNB_X": r"caf\xe9", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        (r"LD_caf\xe9",),
    )
    monkeypatch.setenv("MNB_X", BYTES)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")  # the workers import from its folders
    monkeypatch.setenv("MALLOC_CONF", "")
    finished = run_profile({"steady": {"workload": f"{BROKEN}:steady"}}, tenants=1)
    (record,) = finished.records
    assert record.success
    assert record.mnb.environment["MNB_X"] == r"caf\xe9"
    assert any("not UTF-8" in note and "MNB_X" in note for note in finished.notes)
    (dropped,) = [note for note in finished.notes if "could change results" in note]
    assert "MALLOC_CONF" in dropped
    assert "PYTHONPATH" not in dropped


def test_the_words_of_an_exception_are_escaped(run_profile: Runner) -> None:
    finished = run_profile({"raises": {"workload": f"{BROKEN}:raises_bytes"}}, tenants=1)
    (record,) = finished.records
    assert record.mnb.failure is not None
    assert record.mnb.failure.cause == "exception"
    assert record.mnb.failure.detail == r"RuntimeError: caf\xe9 \ud800"
    assert "raises_bytes" in (record.mnb.failure.traceback or "")
