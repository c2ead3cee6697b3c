"""``pytest --quick`` decides by what a test does, and not by a list. Tests see few variables of the caller."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
SETTINGS = '[tool.pytest.ini_options]\naddopts = "--strict-markers"\nmarkers = ["slow: takes seconds"]\n'
PROCESSES = """
import multiprocessing, os, subprocess, sys
import pytest

@pytest.fixture
def child():
    return subprocess.run([sys.executable, "-c", ""], check=True)

def test_popen(): subprocess.run([sys.executable, "-c", ""], check=True)
def test_fixture(child): pass
def test_system(): os.system("true")
def test_pool():
    process = multiprocessing.get_context("fork").Process(target=print)
    process.start()
    process.join()
def test_caught():
    try:
        subprocess.run(["true"])
    except Exception:
        pass
"""
TORCH_INSIDE = """
def test_itself(): import torch
def test_a_part_of_it(): from torch.nn import Module
def test_through_the_package(): import milabench_ng.bench
"""
PLAIN = """
import pytest
def test_plain(): pass
@pytest.mark.slow
def test_slow(): pass
"""
ENVIRONMENT = """
import os
def test_what_changes_nothing_is_kept(): assert (os.environ["HTTPS_PROXY"], os.environ["UV_OFFLINE"]) == ("p", "1")
def test_all_else_is_dropped(): assert not {"PYTHONPATH", "NO_COLOR", "MNB_CPUS", "OMP_NUM_THREADS"} & os.environ.keys()
def test_ours_hold(): assert os.environ["MNB_WHEELS"] == "numpy" and "mine" not in os.environ["MNB_PYCACHE"]
"""
BUSY = """
import time
def test_busy():
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
def test_waiting(): time.sleep(0.2)
"""


def run(folder: Path, *arguments: str, limit_s: float = 3.0, **modules: str) -> tuple[dict[str, int], str]:
    """What pytest counts in these test modules, and what it prints."""
    text = CONFTEST.read_text()
    assert "LIMIT_S = 3.0\n" in text
    (folder / "conftest.py").write_text(text.replace("LIMIT_S = 3.0", f"LIMIT_S = {limit_s}"))
    (folder / "pyproject.toml").write_text(SETTINGS)
    for name, source in modules.items():
        (folder / f"test_{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *arguments, str(folder)]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    counts = re.findall(r"(\d+) (passed|skipped|failed|errors?)", told.splitlines()[-1])
    return {kind: int(count) for count, kind in counts}, told


def reasons(told: str) -> dict[str, int]:
    """How many tests were skipped, by reason."""
    found: Counter[str] = Counter()
    for count, reason in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", told, re.MULTILINE):
        found[reason] += int(count)
    return found


def test_what_starts_a_process_is_left_out(tmp_path: Path) -> None:
    _, told = run(tmp_path, "--quick", processes=PROCESSES)
    assert reasons(told) == {"not quick: starts a process": 5}


def test_what_imports_torch_is_left_out(tmp_path: Path) -> None:
    _, told = run(tmp_path, "--quick", whole="import torch\n\ndef test_one(): pass\n", inside=TORCH_INSIDE)
    assert reasons(told) == {"not quick: imports torch": 4}


def test_what_is_slow_is_left_out_and_all_else_runs(tmp_path: Path) -> None:
    counts, told = run(tmp_path, "--quick", plain=PLAIN)
    assert counts == {"passed": 1, "skipped": 1}
    assert reasons(told) == {"not quick: slow": 1}


def test_what_became_slow_fails(tmp_path: Path) -> None:
    counts, told = run(tmp_path, "--quick", limit_s=0.1, busy=BUSY)
    assert counts == {"failed": 1, "passed": 1}
    assert "speed the test up, or mark it slow" in told


def test_without_it_all_run(tmp_path: Path) -> None:
    counts, _ = run(tmp_path, plain=PLAIN, processes=PROCESSES)
    assert counts == {"passed": 7}


def test_variables_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"HTTPS_PROXY": "p", "UV_OFFLINE": "1", "NO_COLOR": "1", "MNB_CPUS": "7", "MNB_WHEELS": "", "TERM": "vt52"}
    for name, value in {**given, "PYTHONPATH": "/nowhere", "OMP_NUM_THREADS": "1", "MNB_PYCACHE": "mine"}.items():
        monkeypatch.setenv(name, value)
    counts, told = run(tmp_path, environment=ENVIRONMENT)
    assert counts == {"passed": 3}, told
