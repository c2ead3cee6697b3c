"""A killed loader process is named, whatever its death breaks first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from torch.utils.data import DataLoader, Dataset

from milabench_ng.bench import loader_deaths
from milabench_ng.bench.loader_deaths import naming_deaths


@pytest.fixture(autouse=True)
def child() -> Iterator[subprocess.Popen[bytes]]:
    with suppress(ChildProcessError):  # no children
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):  # of other tests: dead, and nobody asked how
            pass
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("broken", [ConnectionResetError("reset by peer"), EOFError()], ids=repr)
def test_what_a_death_breaks_is_told_as_the_death(broken: Exception, child: subprocess.Popen[bytes]) -> None:
    told = rf"DataLoader worker \(pid {child.pid}\) is killed by signal: Killed\."
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=told) as caught, naming_deaths():
        raise broken
    assert caught.value.__cause__ is broken
    assert child.wait() == -signal.SIGKILL  # its starter still learns of it


class Endless(Dataset[int]):
    """Its second item never comes."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> int:
        time.sleep(600 * place)
        return place


def test_a_death_that_torch_saw_first_is_told_as_the_death() -> None:
    """Its handler does not run, and all it says is that the process exited unexpectedly."""
    batches = iter(DataLoader(Endless(), num_workers=1, timeout=0.2))
    assert next(batches) == 0
    (victim,) = batches._workers  # type: ignore[attr-defined]
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        victim.kill()
        os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(RuntimeError, match=rf"pid {victim.pid}\) is killed by signal: Killed"), naming_deaths():
            next(batches)
    finally:
        signal.signal(signal.SIGCHLD, handler)


def test_a_process_that_ended_well_hides_no_death() -> None:
    with subprocess.Popen(["true"]) as ended, subprocess.Popen(["sleep", "600"]) as victim:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has heard of it
        victim.kill()
        with pytest.raises(RuntimeError, match=rf"pid {victim.pid}\) is killed"), naming_deaths():
            raise EOFError


def test_what_the_handler_of_torch_raises_meanwhile_is_told() -> None:
    def die(number: int, frame: object) -> None:  # noqa: ARG001
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed. ")

    before = signal.signal(signal.SIGALRM, die)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(RuntimeError, match=r"pid 1\) is killed"), naming_deaths():
            raise ConnectionResetError
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_without_a_death_an_error_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_deaths, "DYING_S", 0.05)
    with pytest.raises(EOFError), naming_deaths():
        raise EOFError
    with pytest.raises(FileNotFoundError), naming_deaths():
        raise FileNotFoundError
