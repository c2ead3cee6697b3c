"""The tier without groups: as root on purpose, and as a user to whom nothing is delegated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence import entry, isolation_check
from milabench_ng.fence.choosing import bounds, open_fence
from milabench_ng.fence.interface import Fence, Group, IsolationMismatch
from milabench_ng.fence.probing.probe import probe
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import Effective, GroupEvents, Share

Start = Callable[..., "subprocess.Popen[str]"]
MakeShare = Callable[..., Share]


@pytest.fixture
def loose() -> Iterator[Fence]:
    fence = open_fence(probe(), "affinity", "mnb-test-affinity")
    yield fence
    fence.close()


def enter(group: Group, process: subprocess.Popen[str]) -> None:
    """Wait until it is inside, as its first line tells."""
    assert process.stdout
    assert process.stdout.readline() == "in\n"
    group.verify(process_of(process.pid))


def test_cpus_are_set_and_memory_is_watched(loose: Fence, make_share: MakeShare, start: Start) -> None:
    cpu = max(os.sched_getaffinity(0))
    group = loose.create("t0", make_share(cpu))
    source = "import os, time; print('in', flush=True); os.fork(); x = b'x' * (192 << 20); time.sleep(60)"
    process = start(group, source)
    enter(group, process)
    assert os.sched_getaffinity(process.pid) == {cpu}
    assert group.effective() == Effective()
    # Two processes of 192 MiB each: more than the share of 256 MiB.
    assert wait_for(lambda: bool(group.watch()) and process.poll() is not None)
    assert process.returncode == -9
    verdict = isolation_check.verdict(GroupEvents(), group.events(), group.usage(), None, process.returncode)
    assert verdict is not None
    assert verdict.cause == "oom"
    assert (group.usage().memory_peak_bytes or 0) > 256 * MIB
    assert wait_for(lambda: group.pids() == ())


def test_a_process_that_has_not_entered_is_not_adopted(loose: Fence, make_share: MakeShare) -> None:
    group = loose.create("t0", make_share())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(IsolationMismatch, match="it has not entered"):
            group.verify(process_of(process.pid))
        assert group.pids() == ()


def test_none_leaves_a_tenant_alone(make_share: MakeShare, start: Start) -> None:
    fence = open_fence(probe(), "none", "mnb-test-none")
    group = fence.create("t0", make_share())
    process = start(group, "import time; print('in', flush=True); time.sleep(60)")
    enter(group, process)
    assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(0)
    assert "NOT ISOLATED" in fence.notes[-1]
    fence.close()
    assert process.wait() == -9


AS_USER = """
import json
from milabench_ng.fence.choosing import choose, open_fence
from milabench_ng.model.errors import IsolationError
from milabench_ng.fence.probing.probe import probe
capabilities = probe()
try:
    choose(capabilities, "full")
    refusal = ""
except IsolationError as error:
    refusal = str(error)
fence = open_fence(capabilities, "auto", "mnb-test-user")
fence.close()
print(json.dumps([fence.tier, fence.notes, refusal]))
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_plain_user_gets_affinity_and_is_told_why() -> None:
    # Allowed to read everything, because this Python may lie where other users cannot; writing is what counts.
    reading = "+dac_read_search"
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--bounding-set=-all,{reading}"]
    user += [f"--inh-caps={reading}", f"--ambient-caps={reading}"]
    done = subprocess.run([*user, sys.executable, "-c", AS_USER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tier, notes, refusal = json.loads(done.stdout)
    assert tier == "affinity"
    assert notes[-1].startswith("NOT ISOLATED")
    assert notes[0].startswith("isolation: ")
    assert refusal.startswith(notes[0])
    assert refusal.endswith("Asked for --isolation full, but this node offers affinity.")


def test_bounds_are_those_of_this_process() -> None:
    assert bounds(probe(), "affinity").cpus == tuple(sorted(os.sched_getaffinity(0)))


def test_a_rank_belongs_to_its_own_group_and_not_to_its_agents(
    loose: Fence, make_share: MakeShare, start: Start
) -> None:
    agent, rank = (loose.create(name, make_share()) for name in ("t0", "t1"))
    order = rank.entry.command(["true"])[4]
    source = (
        "import json, os, sys, time, types; sys.path.insert(0, sys.argv[1]); import entry\n"
        "pid = os.fork()\n"
        "if not pid: entry.join(types.SimpleNamespace(**json.loads(sys.argv[2])))\n"
        "print('in' if pid else os.getpid(), flush=True); time.sleep(60)"
    )
    folder = os.path.dirname(entry.__file__)
    process = start(agent, [sys.executable, "-I", "-S", "-c", source, folder, order])
    assert process.stdout
    told = {process.stdout.readline().strip() for _ in range(2)}
    [pid] = (int(word) for word in told - {"in"})
    agent.verify(process_of(process.pid))
    rank.verify(process_of(pid))
    assert agent.pids() == (process.pid,)
    assert rank.pids() == (pid,)
    assert rank.remove()
    assert agent.pids() == (process.pid,)
