"""Inside a job whose steps task/cgroup holds: the tier is full, and it is what a fence of ours would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence import isolation_check
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Fence, Group, IsolationMismatch
from milabench_ng.fence.kernel.processes import is_there
from milabench_ng.fence.killing import OwnGroup
from milabench_ng.fence.sharing.shares import disjoint
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import Share

Start = Callable[[Group, str], "subprocess.Popen[str]"]
Shares = tuple[Share, ...]


def steps() -> list[str]:
    """The steps of this job that Slurm knows, without that of its script."""
    command = ["squeue", "--steps", "--noheader", "--format=%i"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [step for step in said if step.rpartition(".")[2].isdecimal()]


def test_a_step_holds_its_tenant(capabilities: Capabilities, fence: Fence, shares: Shares, start: Start) -> None:
    assert capabilities.slurm is not None
    assert (fence.backend, fence.tier, capabilities.slurm.cpus) == ("slurm", "full", (0, 1))
    groups = [fence.create(f"t{number}", share) for number, share in enumerate(shares)]
    assert len(steps()) == 2
    processes = [start(group, "print('in', flush=True); input()") for group in groups]
    seen = []
    for group, process in zip(groups, processes, strict=True):
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        [pid] = OwnGroup.noted(_task(group)).members()[1:]
        effective, proc = group.verify(process_of(pid))
        assert (effective.memory_bytes, effective.swap_bytes) == (256 * MIB, 0)
        assert proc.cpus_allowed == effective.cpus == group.share.cpus
        assert set(proc.open_fds) == {"0", "1", "2"}
        assert group.pids() == (pid,)
        seen.append(proc.cpus_allowed)
    assert disjoint(seen)
    widened = start(groups[0], f"import os; os.sched_setaffinity(0, {{{seen[1][0]}}})")
    assert "OSError: [Errno 22] Invalid argument" in widened.communicate()[1]
    assert all(group.remove(patience_s=10.0) for group in groups)
    assert wait_for(lambda: steps() == [])


def _task(group: Group) -> str:
    return str(group._groups.task)  # type: ignore[attr-defined]


def test_ends_are_told_exactly(fence: Fence, shares: Shares, start: Start) -> None:
    group = fence.create("t0", shares[0])
    exits = [start(group, f"import sys; sys.exit({status})").wait() for status in (0, 7, 137)]
    kills = [start(group, f"import os; os.kill(os.getpid(), {number})").wait() for number in (9, 11, 15)]
    assert (exits, kills) == ([0, 7, 137], [-9, -11, -15])


def test_out_of_memory_stops_that_tenant_only(fence: Fence, shares: Shares, start: Start) -> None:
    groups = [fence.create(f"t{number}", share) for number, share in enumerate(shares)]
    before = [group.events() for group in groups]
    big, small = start(groups[0], "x = b'x' * (384 << 20)"), start(groups[1], "x = b'x' * (192 << 20)")
    assert (big.wait(), small.wait()) == (-signal.SIGKILL, 0)
    verdicts = [
        isolation_check.verdict(one, group.events(), group.usage(), 256 * MIB, returncode)
        for one, group, returncode in zip(before, groups, (-9, 0), strict=True)
    ]
    assert verdicts[0] is not None
    assert verdicts[0].cause == "oom"
    assert verdicts[1] is None


def test_out_of_memory_in_a_grandchild_ends_the_tenant(fence: Fence, shares: Shares, start: Start) -> None:
    group = fence.create("t0", shares[0])
    grow = "if not os.fork(): x = b'x' * (384 << 20)"
    source = f"import os, time; print(os.getpid(), flush=True)\n{grow}\nos.wait(); time.sleep(60)"
    process = start(group, source)
    assert process.stdout
    group.verify(process_of(int(process.stdout.readline())))
    assert wait_for(lambda: bool(group.watch()) and process.poll() is not None)
    assert process.returncode == -9


def test_a_process_elsewhere_is_a_mismatch(fence: Fence, shares: Shares) -> None:
    group = fence.create("t0", shares[0])
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        with pytest.raises(IsolationMismatch):
            group.verify(process_of(process.pid))
        process.kill()


def test_a_step_that_does_not_end_is_cancelled(fence: Fence, shares: Shares) -> None:
    group = fence.create("t0", shares[0])
    [holder] = OwnGroup.noted(_task(group)).members()
    os.kill(holder, signal.SIGSTOP)
    assert not group.remove(patience_s=0.5)
    assert wait_for(lambda: group.remove(patience_s=0.5), seconds=20.0)
    assert wait_for(lambda: steps() == [], seconds=20.0)


def test_what_slurm_does_not_give_is_an_error(fence: Fence, shares: Shares) -> None:
    too_much = msgspec.structs.replace(shares[0], memory_bytes=20_000 * MIB)
    with pytest.raises(IsolationError, match=r"Slurm does not start the step of t0: srun: error: .*--overlap"):
        fence.create("t0", too_much)


SCRIPTS = Path(__file__).parents[3] / "scripts"
ORCHESTRATOR = """
import json, msgspec, sys, time
from milabench_ng.fence.choosing import open_fence
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.kernel.processes import identify
from parts.fence_trials import python, spawn
from milabench_ng.records.isolation import Share
fence = open_fence(msgspec.json.decode(sys.argv[1], type=Capabilities), "auto", "mnb-test-crash")
source = "import os, time; print(os.getpid(), flush=True); os.fork() or (os.setsid(), os.fork()); time.sleep(60)"
groups = [fence.create(f"t{n}", share) for n, share in enumerate(msgspec.json.decode(sys.argv[2], type=list[Share]))]
running = [spawn(group, python(source)) for group in groups]
for group, process in zip(groups, running):
    group.verify(identify(int(process.stdout.readline())))
while not all(len(group.pids()) == 3 for group in groups):
    time.sleep(0.01)
print(json.dumps([fence._guardian.pid, [pid for group in groups for pid in group.pids()]]), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("guarded", [True, False])
def test_a_killed_orchestrator_leaves_nothing(capabilities: Capabilities, shares: Shares, guarded: bool) -> None:
    words = [msgspec.json.encode(value).decode() for value in (capabilities, shares)]
    command = [sys.executable, "-c", ORCHESTRATOR, *words]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    guard, pids = json.loads(process.stdout.readline())
    tenants = [process_of(pid) for pid in pids]
    assert len(tenants) == 6
    if not guarded:
        os.kill(guard, signal.SIGKILL)
    process.kill()
    process.communicate()
    assert wait_for(lambda: not any(map(is_there, tenants)), seconds=1.0 if guarded else 10.0)
    assert wait_for(lambda: steps() == [], seconds=10.0)


def test_a_run_says_what_held_it(tmp_path: Path) -> None:
    profile = tmp_path / "slurm.json"
    arguments = {"batch_size": 8, "max_seconds": 30, "max_count": 1}
    profile.write_text(json.dumps({"vae": {"workload": "vae", "arguments": arguments, "require": "full"}}))
    folders = ["-d", str(tmp_path / "data"), "-o", str(tmp_path / "results")]
    command = [sys.executable, "-m", "milabench_ng", "jobs", str(profile), *folders]
    done = subprocess.run([*command, "--data-scale", "0.01"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "workers start cold" in done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("slurm.vae.*.json")]
    assert len(records) == 2
    for record in records:
        [isolation] = record["mnb"]["isolation"].values()
        assert (isolation["backend"], isolation["tier"], record["mnb"]["start"]) == ("slurm", "full", "cold")
        assert isolation["effective"]["cpus"] == isolation["requested"]["cpus"] == isolation["proc"]["cpus_allowed"]
        assert isolation["effective"]["memory_bytes"] == isolation["requested"]["memory_bytes"]
        assert isolation["disjoint"] is True
        assert isolation["usage"]["anon_shmem_max_bytes"] > 50 * MIB
        assert not any("isolated" in mark["kind"] for mark in record["mnb"]["marks"])
