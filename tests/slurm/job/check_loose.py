"""Inside a job whose steps the kernel does not hold: affinity and a watchdog, marked, and refused where asked to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import choose
from milabench_ng.fence.interface import Fence, Group
from milabench_ng.fence.sharing.shares import disjoint
from milabench_ng.model.errors import IsolationError
from milabench_ng.records.isolation import Effective, Share

Start = Callable[[Group, str], "subprocess.Popen[str]"]


def test_it_says_that_nothing_is_held(capabilities: Capabilities, fence: Fence) -> None:
    assert (fence.backend, fence.tier) == ("slurm", "affinity")
    assert "ConstrainCores=yes" in fence.notes[0]
    assert fence.notes[-1].startswith("NOT ISOLATED")
    with pytest.raises(
        IsolationError, match=r"ConstrainRAMSpace=yes.*Asked for --isolation full, but this node offers"
    ):
        choose(capabilities, "full")


def test_cpus_are_set_and_memory_is_watched(fence: Fence, shares: tuple[Share, ...], start: Start) -> None:
    groups = [fence.create(f"t{number}", share) for number, share in enumerate(shares)]
    source = "import os, time; print(os.getpid(), flush=True); input(); x = b'x' * (384 << 20); time.sleep(60)"
    processes = [start(group, source) for group in groups]
    seen = []
    for group, process in zip(groups, processes, strict=True):
        assert process.stdout
        effective, proc = group.verify(process_of(int(process.stdout.readline())))
        assert effective == Effective()
        seen.append(proc.cpus_allowed)
    assert disjoint(seen)
    assert processes[0].stdin
    print(file=processes[0].stdin, flush=True)
    assert wait_for(lambda: bool(groups[0].watch()) and processes[0].poll() is not None)
    assert processes[0].returncode == -9
    assert groups[0].events().oom_kill == 1
    assert (bool(groups[1].watch()), processes[1].poll()) == (True, None)
