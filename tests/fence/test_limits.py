"""Niceness, scheduling class and limits that a tenant inherits are reset, or read from the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from milabench_ng.fence.interface import FenceEntry
from milabench_ng.fence.kernel.limits import privileges, read_scheduling
from milabench_ng.records.isolation import Scheduling, handicaps

SHELL = """
import os, resource, sys
for limit, value in ((resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_AS, 1 << 32), (resource.RLIMIT_CPU, 1000)):
    resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))
os.nice(19)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
os.execv(sys.argv[1], sys.argv[1:])
"""
HOLD = [sys.executable, "-I", "-S", "-c", "import sys; print('in', flush=True); sys.stdin.read()"]


def seen(command: list[str]) -> tuple[list[str], list[str]]:
    """What is odd about a command, and what privileges its threads have, when a limited shell starts it."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", SHELL, *command], stdin=pipe, stdout=pipe)
    try:
        assert process.stdout
        if process.stdout.readline() != b"in\n":
            pytest.skip("this user may not use real-time classes, or raise limits")
        return list(handicaps(read_scheduling(process.pid))), list(privileges(process.pid))
    finally:
        process.communicate()


@pytest.mark.root
def test_limits_of_a_shell_are_seen_and_are_gone_inside() -> None:
    odd = [
        "scheduling class fifo",
        "niceness 19",
        "address space limited to 4294967296",
        "cpu time limited to 1000",
        "open files limited to 64",
    ]
    assert seen(HOLD) == (odd, ["scheduling class fifo"])
    assert seen(FenceEntry().command(HOLD)) == ([], [])


def test_what_is_odd_is_told_with_its_figures() -> None:
    odd = Scheduling("rr", -5, {"address space": 10, "open files": 64, "processes": 4096})
    assert list(handicaps(odd)) == [
        "scheduling class rr",
        "niceness -5",
        "address space limited to 10",
        "open files limited to 64",
    ]
    assert list(handicaps(Scheduling("other", 0, {"open files": 65536, "processes": 4096}))) == []
