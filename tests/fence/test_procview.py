"""A process as /proc shows it."""

from __future__ import annotations

import os
import subprocess

import pytest

from milabench_ng.fence.kernel.procview import read_process


def test_a_living_process_has_groups_and_cpus() -> None:
    view = read_process(os.getpid())
    assert view.pid == os.getpid()
    assert view.groups
    assert set(view.cpus_allowed) == os.sched_getaffinity(0)


def test_a_process_that_has_ended_is_not_looked_at_although_it_is_still_listed() -> None:
    """The kernel shows it in the root of every hierarchy, which would look like an escape."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError):
            read_process(child.pid)
