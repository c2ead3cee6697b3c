"""A real fence for tests: in a parent group of their own, so that no run on this machine is in the way or disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import open_fence
from milabench_ng.fence.interface import Fence, Group
from milabench_ng.fence.kernel.cgroupfs import Cpuset1, Group2
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.killing import OwnGroup, sweep
from milabench_ng.fence.probing.probe import probe
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import Share


@pytest.fixture(scope="session")
def capabilities() -> Iterator[Capabilities]:
    """What this node can fence below a group made for these tests; skips where that is not everything."""
    found = probe()
    if found.tier != "full":
        pytest.skip(f"needs a node where mnb can fence fully: {' '.join(found.messages)}")
    name = f"mnb-test-{os.getpid()}-{os.urandom(3).hex()}"
    directories = [Path(parent, name) for parent in found.parents]
    root = Group2(found.parents[0])
    enabled = root.enable(name for name in ("cpuset", "memory", "pids", "io") if found.mode == "v2" and found.ok(name))
    for directory in directories:
        directory.mkdir()
        if found.mode != "v2" and directory.parent == Path(found.controllers["cpuset"].parent):
            above, own = Cpuset1(directory.parent), Cpuset1(directory)
            own.cpus, own.mems = above.effective_cpus, above.effective_mems
    made = [OwnGroup.noted(str(directory)) for directory in directories]
    yield probe(name)
    sweep(made, patience_s=5.0)
    root.disable(enabled)


@pytest.fixture
def fence(capabilities: Capabilities) -> Iterator[Fence]:
    fence = open_fence(capabilities, "full", f"mnb-test-{os.urandom(4).hex()}", holds="CPUs of a test")
    yield fence
    fence.close()


@pytest.fixture
def make_share() -> Callable[..., Share]:
    """A share of 256 MiB on one CPU."""
    mems = read_process(os.getpid()).mems_allowed

    def make(cpu: int = 0, memory_bytes: int = 256 * MIB, pids: int = 200) -> Share:
        return Share((cpu,), mems, memory_bytes, memory_bytes, pids, cores=1)

    return make


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python source, or a command line, inside a group; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(group: Group, source: str | list[str]) -> subprocess.Popen[str]:
        argv = [sys.executable, "-I", "-S", "-c", source] if isinstance(source, str) else source
        pipe = subprocess.PIPE
        process = subprocess.Popen(group.entry.command(argv), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
