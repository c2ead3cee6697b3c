"""What srun tells of a step, and the script that is handed to Slurm; a real Slurm is in tests/slurm."""

from __future__ import annotations

import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.launchers.interface import Asked, Ended
from milabench_ng.fleet.launchers.slurm import Slurm, Step, make
from milabench_ng.fleet.rendering.slurm_script import slurm_script
from milabench_ng.model.errors import InputError

TOLD = b"""\
 0: mnb-node gpu1
10: mnb-node gpu2
 2: mnb-node gpu1
 0: eA==
 0:
 2: eQ==
 0: mnb-status 0
10: eg==
 2: mnb-status 0
"""


def test_what_tasks_print_is_of_their_nodes() -> None:
    heard: list[tuple[str, bytes]] = []
    step = Step(["gpu1", "gpu2", "gpu3"], lambda *line: heard.append(line))
    for line in TOLD.splitlines():
        step.output(line)
    assert heard == [("gpu1", b"eA=="), ("gpu1", b""), ("gpu2", b"eg==")], "nobody speaks for another node"
    assert step.ended == [Ended("gpu1", 0, "")]


def test_nodes_that_do_not_tell_their_end_are_lost_for_the_reason_that_srun_has() -> None:
    step = Step(["gpu1", "gpu2", "gpu10"], lambda *_: None)
    step.output(b"1: mnb-node gpu2")
    step.output(b"1: mnb-status what a node may print, too")
    for line in (
        b"srun: cluster configuration lacks support for cpu binding",
        b"1: its own word",
        b"srun: error: Task launch for StepId=3.0 failed on node gpu10: Communication connection failure",
        b"srun: error: gpu2: task 1: Killed",
        b"srun: error: Application launch failed: Communication connection failure",
    ):
        step.errors(line)
    assert {one.node: (one.status, one.said) for one in step.lost()} == {
        "gpu1": (None, "Application launch failed: Communication connection failure"),
        "gpu2": (None, "gpu2: task 1: Killed"),
        "gpu10": (None, "Task launch for StepId=3.0 failed on node gpu10: Communication connection failure"),
    }
    (silent,) = Step(["gpu1"], lambda *_: None).lost()
    assert silent.said == "srun ended without a word of it"


def test_nodes_of_another_allocation_are_lost_and_nothing_is_started() -> None:
    with Slurm(("a", "b"), frozenset()).run(("a", "b"), "exit 0", lambda *_: None) as ended:
        assert [one.said for one in ended] == ["not in this allocation"] * 2


def test_outside_of_an_allocation_there_are_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(InputError, match="not inside an allocation"):
        make(Asked(count=2))
    with pytest.raises(InputError, match="--nodelist"):
        make(Asked(hosts="gpu[1-2]"))


SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=mnb-fleet
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --no-kill
#SBATCH --signal=B:TERM@120
#SBATCH --output=/home/a/acceptance-%j.log
#SBATCH --partition=gpu
#SBATCH --comment="node \\"7\\" too"
exec /opt/mnb/bin/mnb fleet run standard '--jobs=--repeat 3'
"""


def test_the_script_is_this_one() -> None:
    command = ("/opt/mnb/bin/mnb", "fleet", "run", "standard", "--jobs=--repeat 3")
    options = ("--partition=gpu", '--comment=node "7" too')
    assert slurm_script(16, command, options, "/home/a/acceptance-%j.log", {}) == SCRIPT
    for option in ("gpu", "--comment=a\n#SBATCH --uid=0"):
        with pytest.raises(InputError, match="expected an option of sbatch"):
            slurm_script(1, command, (option,), "log", {})


def test_what_is_submitted_can_be_read_before(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "quick",
        "--nodes",
        "2",
        "-o",
        "/x/f",
        "--jobs",
        "--repeat 3",
        "--mnb",
        "/opt",
        "--",
        "--partition=gpu",
    )
    assert call(("fleet", "render", "slurm", *words)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "#SBATCH --nodes=2"
    assert lines[-2] == "#SBATCH --partition=gpu"
    given = "--launcher=slurm --output=/x/f '--jobs=--repeat 3' --mnb=/opt -- --partition=gpu"
    assert lines[-1].endswith(f"quick.json {given}")
    assert call(("fleet", "render", "slurm", "quick", "-o", "/x/f")) == 2
    assert "Try --nodes 16" in capsys.readouterr().err
