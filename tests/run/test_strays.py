"""Processes that have left their fence: found by descent, whatever they did."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import psutil

from milabench_ng.fence.interface import Group
from milabench_ng.fence.kernel.processes import Family, identify, read_table
from milabench_ng.records.isolation import Usage
from milabench_ng.run.execution.strays import look
from tests.run.conftest import AT_WORK, BROKEN, needs_two_cpus

OF_A_BUSY_NODE = {"orchestrator paused", "foreign CPU load", "telemetry missing"}
DAEMON = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        print(os.getpid(), flush=True)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(3600)"], {})
    os._exit(0)
os.wait()
"""
WATCH = f"""
import subprocess, sys
from milabench_ng.fence.entry import adopt_orphans
from milabench_ng.fence.kernel.processes import below_us
from milabench_ng.run.execution.strays import end_strays, running
adopt_orphans()
known = running()
worker = subprocess.Popen([sys.executable, "-c", {DAEMON!r}], stdout=subprocess.PIPE, text=True)
pid = worker.stdout.readline().strip()
worker.wait()
found = end_strays(known, [below_us()])
print(len(found), pid in found[0], end_strays(known, [below_us()]), running() == known)
"""
ADOPTS = """
import os, subprocess, time
from milabench_ng.fence.entry import adopt_orphans
from milabench_ng.fence.kernel.processes import read_stat
from milabench_ng.run.execution.strays import end_strays, running
adopt_orphans()
script = "read go; (sleep 600 & echo $!) ; read go"
pipe = subprocess.PIPE
theirs = subprocess.Popen(["sh", "-c", script], stdin=pipe, stdout=pipe, text=True)
known = running()
print("go", file=theirs.stdin, flush=True)
orphan = theirs.stdout.readline().strip()
while (seen := read_stat(int(orphan))) and (seen.name, seen.parent) != ("sleep", os.getpid()):
    time.sleep(0.01)  # its shell has not ended, or it has not become sleep yet
print(end_strays(known, ()) == (f"sleep ({orphan})",), theirs.poll())
subprocess.run(["kill", orphan], check=True)
theirs.communicate("go")
"""


FORKS = """
import subprocess, time
from milabench_ng.fence.entry import adopt_orphans
from milabench_ng.fence.kernel.processes import Family
from milabench_ng.run.execution.strays import end_strays, running
adopt_orphans()
pipe = subprocess.PIPE
script = "read go; sleep 600 & echo $!; read go; kill $!"
theirs = subprocess.Popen(["sh", "-c", script], stdin=pipe, stdout=pipe, text=True)
foreign = tuple(map(Family, running()))
known = running()
print("go", file=theirs.stdin, flush=True)
theirs.stdout.readline()
print(end_strays(known, (), foreign), theirs.poll(), len(running() - known))
theirs.communicate("go")
"""


class Counted:
    """A group that holds everything, and counted so much CPU time."""

    def __init__(self, cpu_usec: int | None) -> None:
        self.cpu_usec = cpu_usec

    def outside(self, pid: int) -> str:  # noqa: ARG002
        return ""

    def usage(self) -> Usage:
        return Usage(cpu_usec=self.cpu_usec)


def group(cpu_usec: int | None) -> Group:
    made: Any = Counted(cpu_usec)
    return made


def seen(pid: int, *groups: Group) -> str:
    process = identify(pid)
    assert process
    return look(Family(process), groups, read_table()).departed


def test_a_daemon_with_no_session_group_or_environment_of_ours_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", WATCH], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "1 True () True\n"


def test_an_orphan_of_somebody_elses_is_named_and_left_alone() -> None:
    """In a shell script that begins something of its own, and then becomes mnb (`exec`)."""
    done = subprocess.run([sys.executable, "-c", ADOPTS], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "True None\n", "and its kill(1) found it alive"


def test_what_somebody_elses_process_starts_is_no_stray() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "() None 1\n"


def test_cpu_time_that_the_group_did_not_count_was_used_elsewhere() -> None:
    source = "import time\nwhile time.process_time() < 1.5: pass\nprint('spun', flush=True); input()"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", source], stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout
        process.stdout.readline()
        assert "only 0.2 s of it in its group" in seen(process.pid, group(100_000), group(100_000))
        assert seen(process.pid, group(1_000_000), group(500_000)) == ""
        assert seen(process.pid, group(None)) == ""
    finally:
        process.communicate("end\n")


@needs_two_cpus
def test_a_tenant_that_widens_its_affinity_fails_and_its_daemon_ends(run_profile) -> None:  # type: ignore[no-untyped-def]
    tests = {name: {"workload": f"{BROKEN}:{name}"} for name in ("widens", "leaves_a_daemon")}
    finished = run_profile(tests, isolation="affinity", rule=AT_WORK, tenants=2)
    for record in finished.of("widens"):
        assert record.mnb.failure.cause == "isolation_lost"
        assert "may run on CPUs" in record.mnb.failure.detail
    for record in finished.of("leaves_a_daemon"):
        assert record.success
        assert {mark.kind for mark in record.mnb.marks} - OF_A_BUSY_NODE == {"not isolated", "window shortened"}
        proc = record.mnb.isolation[str(record.device)].proc
        assert proc.confinement.no_new_privs
    daemons = [int(pid) for pid in re.findall(r"^daemon (\d+)$", finished.log("leaves_a_daemon"), re.MULTILINE)]
    assert len(daemons) == 2
    assert not any(map(psutil.pid_exists, daemons))
