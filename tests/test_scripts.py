"""Scripts in Python are checked like the package: names without .py are not found by themselves. All say usage."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if path.is_file())
LEFT_OUT = {"ensure-uv", "mnb"}
"""One is sourced by others, one sets up the environment."""
NEED_ARGUMENTS = (
    "ensure-packages",
    "known-rates",
    "known-twins",
    "loading-plots",
    "screenshots",
    "traces",
    "weigh",
    "wheelhouse",
)
"""Of those that import torch, the first test is enough."""


def test_every_python_script_is_typed_and_linted() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    files = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    python = {path for path in files if "python" in path.read_text().partition("\n")[0]}
    for listed in (tools["mypy"]["files"], tools["ruff"]["extend-include"]):
        assert {path for name in listed for path in ROOT.glob(name) if path.is_file()} == python


def call_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as `uv run` does."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    command = [str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environ)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in LEFT_OUT])
def test_every_script_says_its_usage(name: str) -> None:
    done = call_script(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert name in done.stdout


@pytest.mark.parametrize("name", NEED_ARGUMENTS)
def test_a_script_that_lacks_arguments_says_its_usage(name: str) -> None:
    done = call_script(name)
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_python_and_its_tools_see_none_of_the_variables_that_are_for_them(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\nenv >> "$HOME/seen"\n')
    uv.chmod(0o755)
    kept = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PIP_CERT": "a", "https_proxy": "b"}
    dropped = {"PYTHONUNBUFFERED": "1", "MYPYPATH": "c", "RUFF_CONFIG": "d", "TWO": "lines\nPYTHONUTF8=0"}
    subprocess.run([ROOT / "scripts" / "test", "--quick"], env={**kept, **dropped}, check=True)
    seen = (tmp_path / "seen").read_text().splitlines()
    assert {f"{name}={value}" for name, value in kept.items()} <= set(seen)
    assert not [line for line in seen if line.startswith(("PYTHONUNBUFFERED", "MYPY", "RUFF"))]
