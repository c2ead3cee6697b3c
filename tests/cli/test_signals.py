"""Ctrl-C and SIGTERM end a command with one line and the status that a shell knows, wherever they strike."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STRUCK = """
import importlib.abc, os, runpy, sys
class Striker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), int(number))
module, number, *sys.argv[1:] = sys.argv[1:]
sys.meta_path.insert(0, Striker())
runpy.run_module("milabench_ng", run_name="__main__", alter_sys=True)
"""
"""Run ``mnb``, which gets a signal when it imports a module."""


def struck(module: str, number: int, *arguments: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    """``mnb`` with these arguments, and a signal when it imports the module."""
    return subprocess.run(
        [sys.executable, "-c", STRUCK, module, str(int(number)), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=(lambda: signal.signal(number, signal.SIG_IGN)) if ignored else None,
    )


@pytest.mark.parametrize(
    "module",
    [
        "milabench_ng.cli",
        "cyclopts",
        "inspect",  # in the middle of cyclopts
        "milabench_ng.cli.report",
        "milabench_ng.analysis.statistics",  # in the middle of the command's own imports
    ],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_imports(module: str, number: signal.Signals, code: int) -> None:
    done = struck(module, number, "report", "baselines/h200.json")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"mnb: interrupted ({number.name})\n")


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """A shell starts what ends in ``&`` this way."""
    done = struck("cyclopts", signal.SIGINT, "report", "baselines/h200.json", ignored=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_command(tmp_path: Path, number: signal.Signals, code: int) -> None:
    page = tmp_path / "page.html"
    done = struck("jinja2", number, "report", "baselines/h200.json", "--html", str(page))
    assert (done.returncode, done.stderr) == (code, f"mnb: interrupted ({number.name})\n")
    assert not list(tmp_path.iterdir())


def test_the_script_is_the_module() -> None:
    """The installed script heeds signals as early as ``python -m milabench_ng`` does."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"mnb": "milabench_ng.__main__:main"}
