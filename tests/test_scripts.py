"""Scripts in Python are checked like the package: names without .py are not found by themselves. All say usage."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.one_server import Done

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


def call_script(name: str, *arguments: str) -> Done:
    """Run a script: one in Python in this process, where what it imports is imported once for all of them."""
    path = ROOT / "scripts" / name
    if "python" in path.read_text().partition("\n")[0]:
        assert os.access(path, os.X_OK)
        return run_here(path, *arguments)
    environ = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    done = subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, check=False, timeout=300, env=environ
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_here(path: Path, *arguments: str) -> Done:
    """Run a file of Python as the main module, with its folder as Python's first."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        patch.setattr(sys, "argv", [str(path), *arguments])
        patch.setattr(sys, "path", [str(path.parent), *sys.path])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


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
