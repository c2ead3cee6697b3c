"""Signals to `mnb` itself, in every phase of a run: it says so, ends in seconds, and leaves nothing; or goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng.model.signals import exit_code
from tests.living import alive
from tests.run.conftest import tell_seen
from tests.run.processes import process_tree

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0
STEADY = {"workload": "tests.run.broken:steady", "limits": {"silence": 5}}
READER = {"workload": "loader", "arguments": {"batch_size": 8, "workers": 1}, "data_scale": 0.05}

long = pytest.mark.skipif("MNB_TEST_FAULTS" not in os.environ, reason="many seconds: scripts/fault-matrix")


class Run:
    """A running `mnb jobs`."""

    def __init__(self, place: Path, test: dict[str, object], *words: str, **options: object) -> None:
        (place / "trial.json").write_text(json.dumps({"test": test}))
        self.folder, self.said = place / "out", place / "said.txt"
        self.temporary = Path(tempfile.mkdtemp(prefix="t"))  # a short path, or sockets would have to be elsewhere
        command = [sys.executable, "-m", "milabench_ng", "jobs", "trial.json", "-o", "out", "-d", "data"]
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*command, "--window", "1", "--tenants", "1", "--isolation", "none", *words],
                cwd=place,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)},
                start_new_session=True,
                **{"stdout": said, "stderr": subprocess.STDOUT, **options},  # type: ignore[call-overload]
            )

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for it."""
        end_s = time.monotonic() + LIMIT_S
        while not reached():
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < end_s, self.said.read_text()
            time.sleep(0.02)

    def until_said(self, words: str) -> None:
        """Wait until it has said this."""
        self.until(lambda: words in self.said.read_text())

    def until_at_work(self) -> None:
        """Wait for the first slices."""
        events = self.folder / "events.jsonl"
        self.until(lambda: events.exists() and '"type":"Slices"' in events.read_text())

    def end(self) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(LIMIT_S)
        tell_seen(self.folder)
        return code

    @property
    def left(self) -> list[Path]:
        """Temporary folders."""
        return list(self.temporary.glob("mnb-*"))

    def causes(self) -> list[str | None]:
        """Of all records."""
        records = [path for path in self.folder.glob("*.json") if path.name != "run.json"]
        failures = [json.loads(path.read_text())["mnb"]["failure"] for path in records]
        return [failure and failure["cause"] for failure in failures]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Begin a run, which is killed with the test."""
    begun: list[Run] = []

    def run(test: dict[str, object], *words: str, **options: object) -> Run:
        begun.append(Run(tmp_path, test, *words, **options))
        return begun[-1]

    yield run
    for one in begun:
        one.process.kill()
        one.process.wait()
        shutil.rmtree(one.temporary)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=long)])
def test_a_signal_while_data_are_prepared_leaves_nothing(begin: Callable[..., Run], number: signal.Signals) -> None:
    run = begin({**READER, "data_scale": 0.5})
    run.until_said("generating")
    tree = process_tree(run.process.pid)
    os.kill(run.process.pid, number)
    assert run.end() == exit_code(number)
    assert f"interrupted ({number.name})" in run.said.read_text()
    assert "Traceback" not in run.said.read_text()
    assert not run.left
    assert not run.folder.exists(), "not even an empty folder"
    end_s = time.monotonic() + LIMIT_S
    while any(map(alive, tree)) and time.monotonic() < end_s:  # the generating processes remove what they made
        time.sleep(0.05)
    assert not [pid for pid in tree if alive(pid)]
    assert not list((run.folder.parent / "data").rglob(".mnb-*")), "nor half a dataset"


def test_signals_that_a_launcher_blocks_or_ignores_are_heard(begin: Callable[..., Run]) -> None:
    def launcher() -> None:
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    run = begin(STEADY, "--repeat", "9", preexec_fn=launcher)
    run.until_at_work()
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.end() == exit_code(signal.SIGTERM)
    assert "interrupted (SIGTERM)" in run.said.read_text()
    assert not run.left


@long
def test_nohup_keeps_a_run_from_the_end_of_its_terminal(begin: Callable[..., Run]) -> None:
    run = begin(STEADY, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    run.until_at_work()
    os.kill(run.process.pid, signal.SIGHUP)
    assert run.end() == 0
    assert run.causes() == [None]


@long
@pytest.mark.parametrize("whole", [False, True], ids=["mnb", "all of it"])
def test_a_pause_longer_than_the_silence_limit_is_forgiven_and_marked(begin: Callable[..., Run], whole: bool) -> None:
    """The orchestrator is stopped, as by Ctrl-Z; or everything, as by a machine that is frozen, and wakes up first."""
    run = begin(STEADY)
    run.until_at_work()
    stopped = process_tree(run.process.pid) if whole else [run.process.pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(8.0)  # the fault itself: longer than the limit of 5 s
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
    assert run.end() == 0, run.said.read_text()
    [record] = [path for path in run.folder.glob("*.json") if path.name != "run.json"]
    marks = {mark["kind"]: mark for mark in json.loads(record.read_text())["mnb"]["marks"]}
    assert marks["orchestrator paused"]["value"] > 5


@pytest.mark.parametrize(("words", "number"), [((), signal.SIGTERM), (("--dry-run",), signal.SIGINT)], ids=str)
def test_the_folder_of_a_run_that_never_began_is_as_before(
    begin: Callable[..., Run], words: tuple[str, ...], number: signal.Signals
) -> None:
    """No handler is late: from the first moment on a signal ends the command quietly."""
    run = begin(STEADY, *words)
    run.until_said("importing torch")
    os.kill(run.process.pid, number)
    assert run.end() == exit_code(number)
    assert f"mnb: interrupted ({number.name})" in run.said.read_text()
    assert "Traceback" not in run.said.read_text()
    assert not run.left
    assert not run.folder.exists()
