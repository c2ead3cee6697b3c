"""The fence of this job, and what to start in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from parts.fence_trials import end, python, spawn

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import bounds, open_fence
from milabench_ng.fence.interface import Fence, Group
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.sharing.shares import Placement, allocate
from milabench_ng.model.units import MIB
from milabench_ng.node.topology import read_topology
from milabench_ng.records.isolation import Share

sys.path.append(str(Path(__file__).parents[2] / "fence"))


@pytest.fixture(scope="session")
def capabilities() -> Capabilities:
    return probe()


@pytest.fixture
def fence(capabilities: Capabilities) -> Iterator[Fence]:
    made = open_fence(capabilities, "auto", "mnb-test-slurm")
    yield made
    made.close()


@pytest.fixture(scope="session")
def shares(capabilities: Capabilities) -> tuple[Share, ...]:
    """Half of the job for each of two tenants, with 256 MiB."""
    halves = allocate(read_topology(), [Placement("0"), Placement("1")], bounds(capabilities, "auto")).shares
    return tuple(msgspec.structs.replace(share, memory_bytes=256 * MIB) for share in halves.values())


@pytest.fixture
def start() -> Iterator[Callable[[Group, str], subprocess.Popen[str]]]:
    """Start Python source in a group; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(group: Group, source: str) -> subprocess.Popen[str]:
        started.append(spawn(group, python(source)))
        return started[-1]

    yield run
    end(started)
