"""The programs that carry a process into a Slurm step, without Slurm: the holder is started here, as Slurm would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fence_waiting import process_of, wait_for
from parts.fence_trials import python

from milabench_ng.fence.backends.scope import worthwhile
from milabench_ng.fence.capabilities import Capabilities, SlurmJob
from milabench_ng.fence.interface import FenceEntry, HolderAddress
from milabench_ng.fence.kernel.processes import Process, is_there
from milabench_ng.fence.slurm_step import allocation, step

Start = Callable[..., "subprocess.Popen[str]"]
HELD = SlurmJob("7", "n1", (0, 1), True, True, 1 << 34, True, False)


class Held:
    """A holder, and the connection of the orchestrator to it."""

    def __init__(self) -> None:
        self.name = f"mnb-test-{os.urandom(8).hex()}"
        argv = [sys.executable, "-I", "-S", step.__file__, "hold", self.name]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.process.stdout.readline()
        self.control, pid = step.connect(self.name)
        assert pid == self.process.pid
        self.door = HolderAddress(self.name, *process_of(pid))

    def sleep(self) -> tuple[subprocess.Popen[str], Process]:
        """A process of a tenant that would sleep for a minute, and what it is within the step."""
        process = self.start("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
        assert process.stdout
        return process, process_of(int(process.stdout.readline()))

    def start(self, source: str) -> subprocess.Popen[str]:
        """As a tenant's process: through the entry, in the holder's stead."""
        pipe = subprocess.PIPE
        argv = FenceEntry(door=self.door).command(python(source))
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.control.close()
    made.process.communicate()


def test_the_caller_ends_as_its_process_did(held: Held) -> None:
    sources = [*(f"import sys; sys.exit({status})" for status in (0, 3, 137)), *map(_killed_by, (9, 11, 15))]
    started = [held.start(source) for source in sources]
    assert [process.wait() for process in started] == [0, 3, 137, -9, -11, -15]


def _killed_by(number: int) -> str:
    return f"import os; os.kill(os.getpid(), {number})"


def test_descriptors_environment_and_folder_are_the_callers(
    held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MNB_TEST_WORD", "ünder \udcff")
    monkeypatch.chdir(tmp_path)
    source = (
        "import os, sys; print(os.getppid(), os.getsid(0) == os.getpid(), os.environb[b'MNB_TEST_WORD'], os.getcwd(), "
        "sorted(os.listdir('/proc/self/fd'))[:3], input()); print('wrong', file=sys.stderr)"
    )
    said, complaint = held.start(source).communicate("given\n")
    word = "ünder ".encode() + b"\xff"
    assert said == f"{held.process.pid} True {word!r} {tmp_path} ['0', '1', '2'] given\n"
    assert complaint == "wrong\n"


def test_a_process_ends_with_its_caller(held: Held) -> None:
    process, within = held.sleep()
    process.kill()
    process.communicate()
    assert wait_for(lambda: not is_there(within))
    assert held.start("").wait() == 0


def test_all_end_with_the_orchestrator(held: Held) -> None:
    process, within = held.sleep()
    held.control.close()
    assert held.process.wait() == 0
    assert process.wait() == -9
    assert wait_for(lambda: not is_there(within))


def test_a_step_that_is_gone_is_said(held: Held) -> None:
    held.control.close()
    held.process.wait()
    process = held.start("")
    assert process.wait() == step.EXIT_REFUSED
    assert process.stderr
    assert "the Slurm step of this tenant cannot be reached" in process.stderr.read()


@pytest.mark.parametrize(
    ("counts", "node", "expected"), [("2", "0", 2), ("72(x2),36", "1", 72), ("72(x2),36", "2", 36), ("", "0", 1)]
)
def test_cpus_of_a_job_on_this_node(counts: str, node: str, expected: int) -> None:
    assert allocation.cpus_on_node({"SLURM_JOB_CPUS_PER_NODE": counts, "SLURM_NODEID": node}) == expected


def test_what_slurm_is_asked_for() -> None:
    assert allocation.words_for(HELD, 4, (3 << 30) + 5) == (
        *("--exact", "--immediate=30", "--nodelist=n1", "--cpus-per-task=4", "--mem=3072M", "--gres=none"),
    )
    asked = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "5", "SRUN_X": "1", "SLURM_CONF": "c", "PATH": "p"}
    assert allocation.srun_environment(asked) == {"SLURM_JOB_ID": "7", "SLURM_CONF": "c", "PATH": "p"}


def test_only_what_the_kernel_holds_is_full() -> None:
    assert (HELD.tier, HELD.reasons) == ("full", ())
    loose = SlurmJob("7", "n1", (0, 1), True, False, None, True, False)
    assert loose.tier == "partial"
    assert "RAM (cgroup.conf: ConstrainRAMSpace=yes)" in loose.reasons[0]
    assert SlurmJob("7", "n1", (0, 1), False, True, 1 << 34, False, False).tier == "affinity"


def test_outside_of_an_allocation_there_is_none() -> None:
    assert allocation.read_job({}, ("/sys/fs/cgroup",), 0) is None
    inside = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    assert allocation.read_job(inside, ("/sys/fs/cgroup/system.slice/job_7/step_batch",), 0) is None


def test_a_scope_would_leave_the_allocation() -> None:
    plain = Capabilities("v2", "6.1", False, {})
    assert worthwhile(plain, {"XDG_RUNTIME_DIR": "/run"}, True)
    assert not worthwhile(plain, {"XDG_RUNTIME_DIR": "/run", "SLURM_JOB_ID": "7"}, True)
