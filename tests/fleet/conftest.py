"""Fleets are made of the result folders that tests of reports make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench_ng.cli import call

sys.path.append(str(Path(__file__).parents[1] / "report"))

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each node: all of them share the CPUs of this machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Call ``mnb``: exit code, output, error output."""

    def called(*words: object) -> tuple[int, str, str]:
        code = call(list(map(str, words)))
        told = capsys.readouterr()
        return code, told.out, told.err

    return called
