"""Two runs at once: of those that want the same CPUs, one begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.claims import Claim, resources
from milabench_ng.model.errors import InUseError, IsolationError

# What a run does from the look for others to its own groups; `planned` has what that needs of a planned run.
RUN = """
import contextlib, sys
from types import SimpleNamespace as Has
from milabench_ng.fence.claims import Claim
from milabench_ng.model.errors import InUseError
from milabench_ng.fence.probing.probe import probe
from milabench_ng.run.jobs import fenced
parent, run_id, isolation = sys.argv[1:]
planned = Has(
    plan=Has(devices=()),
    capabilities=probe(parent or None),
    isolation=isolation,
    request=Has(allow_concurrent=False),
)
print("ready", flush=True)
sys.stdin.readline()
try:
    with Claim(("cpu4000", "cpu4001"), run_id), fenced(planned, run_id, Has(note=lambda text: None)):
        print("in", flush=True)
        sys.stdin.readline()
except InUseError as error:
    print(error, flush=True)
"""


def said(runs: list[subprocess.Popen[str]]) -> list[str]:
    """The next line of each."""
    lines = []
    for run in runs:
        assert run.stdout
        lines.append(run.stdout.readline().strip())
    return lines


def go(runs: list[subprocess.Popen[str]]) -> None:
    """Let all go on."""
    for run in runs:
        assert run.stdin
        run.stdin.write("go\n")
        run.stdin.flush()


def begin_at_once(parent: str, isolation: str) -> list[str]:
    """What runs say that begin at the same moment."""
    names = [f"mnb-test-{os.urandom(4).hex()}" for _ in range(4)]
    pipe = subprocess.PIPE
    runs = [
        subprocess.Popen([sys.executable, "-c", RUN, parent, name, isolation], stdin=pipe, stdout=pipe, text=True)
        for name in names
    ]
    try:
        assert said(runs) == ["ready"] * 4
        go(runs)
        return said(runs)
    finally:
        for run in runs:
            run.communicate("go\n")


@pytest.mark.root
def test_of_runs_that_begin_at_once_one_gets_the_fence(capabilities: Capabilities) -> None:
    parent = Path(capabilities.parents[0]).name
    lines = begin_at_once(parent, "full")
    assert lines.count("in") == 1
    refused = "uses CPUs 4000-4001. Wait for it to end. A run begun with --allow-concurrent"
    assert sum(refused in line for line in lines) == 3


@pytest.mark.parametrize("isolation", ["affinity", "none"])
def test_without_groups_too_one_of_them_begins(isolation: str) -> None:
    assert begin_at_once("", isolation).count("in") == 1


@pytest.fixture
def cpus() -> tuple[str, ...]:
    """CPUs that no run has."""
    return resources((5001, 5000), (None, "GPU-test"))


def test_a_second_run_is_refused_and_told_of_the_first(cpus: tuple[str, ...]) -> None:
    with Claim(cpus, "first") as first:
        with pytest.raises(
            InUseError, match=rf"run first \(pid {os.getpid()}\).* uses CPUs 5000-5001, GPU-test"
        ) as said:
            Claim(cpus, "second")
        assert said.value.exit_code != IsolationError.exit_code  # a script may wait for the first to end
        assert first.contested() == ()
    with Claim(cpus, "second"):
        pass


def test_an_allowed_second_run_shows_in_both_as_long_as_both_live(cpus: tuple[str, ...]) -> None:
    with Claim(cpus, "first") as first:
        with Claim(cpus[:2], "second", allow_concurrent=True) as second:
            assert first.contested() == second.contested() == ("cpu5000", "cpu5001")
            first.close()
            assert second.contested() == ()
            with pytest.raises(InUseError, match="run second"):
                Claim(cpus, "third")
        assert first.contested() == ()


def test_runs_on_other_cpus_do_not_meet(cpus: tuple[str, ...]) -> None:
    with Claim(cpus[:1], "first"), Claim(cpus[1:], "second") as second:
        assert second.contested() == ()
