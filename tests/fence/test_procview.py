"""A process as /proc shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.fence.kernel.mounts import parse_own_groups
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.whereabouts import moved, outside


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


def test_a_name_with_a_blank_is_told_whole() -> None:
    source = "open('/proc/self/comm', 'w').write('my prog'); print(flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", source], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout
        child.stdout.readline()
        place, groups = str(child.pid), parse_own_groups(Path("/proc/self/cgroup").read_text())
        elsewhere = dict.fromkeys(groups, "/elsewhere")
        assert moved(place, groups) == ""
        assert moved(place, elsewhere).startswith(f"my prog ({place}) was in group /elsewhere of ")
        assert outside(child.pid, elsewhere, ()).startswith(f"my prog ({place}) is in group ")
        child.communicate("\n")
        assert moved(place, elsewhere) == ""
