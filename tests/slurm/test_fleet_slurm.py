"""Fleets on a real Slurm of 16 nodes on this machine, run by `scripts/test --slurm` only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, build, cluster

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.ledger import NodeStarted
from milabench_ng.fleet.network.meetings import pairs_seen, read_meeting
from tests.fleet.made_folders import records_of
from tests.fleet.stand_in import SPREAD, StandIn, kill_all_in, make_stand_in

pytestmark = [
    pytest.mark.skipif("MNB_TEST_SLURM" not in os.environ, reason="starts a Slurm cluster: scripts/test --slurm"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.timeout(600),
]
NODES = tuple(f"gpu{number:02}" for number in range(1, 17))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(build(), tmp_path_factory.mktemp("cluster") / "slurm", "task/none", NODES) as made:
        yield made


@pytest.fixture(autouse=True)
def idle(running: Cluster) -> Iterator[None]:
    """No job is left of a test that failed, and no node is held."""
    yield
    for pid in running.daemons.values():
        os.kill(pid, signal.SIGCONT)
    subprocess.run(["scancel", "--full", "-u", "root"], env=running.environment, check=False)


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return make_stand_in(tmp_path / "mnb")


def mnb(made: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "milabench_ng", "fleet", *words]
    environment = {**made.environment, "OMP_NUM_THREADS": "1"}  # all nodes share the CPUs of one machine
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def states(made: Cluster, folder: Path) -> dict[str, Any]:
    found = json.loads(mnb(made, "status", str(folder), "--format", "json").stdout)
    return {one["node"]: one["standing"] for one in found["nodes"]}


def first(folder: Path, pattern: str) -> Path:
    """The first file of that name, when there is one."""
    until = time.monotonic() + 100
    while time.monotonic() < until:
        for found in folder.glob(pattern):
            return found
        time.sleep(0.02)
    raise AssertionError(f"no {pattern}")


def test_64_tasks_start(running: Cluster) -> None:
    """Of what a launcher adds, the start of its step is the most."""
    began = time.monotonic()
    words = ["srun", "-N16", "--overcommit", "-n64", "--label", "true"]
    subprocess.run(words, env=running.environment, check=True, timeout=60)
    print(f"64 tasks on 16 nodes: {time.monotonic() - began:.1f} s")


def test_a_fleet_of_16_nodes_of_which_one_dies_and_one_is_away(
    running: Cluster, stand_in: StandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "fleet"
    stand_in.hang("gpu05")

    def lose_two() -> None:
        first(tmp_path, "fleet-*.log")  # the job has begun, and asks no node yet
        os.kill(running.daemons["gpu03"], signal.SIGSTOP)
        kill_all_in(first(tmp_path, "there/mnb-fleet-*/gpu05"))

    killer = threading.Thread(target=lose_two)
    killer.start()
    words = ("--mnb", stand_in.command, "--node-folder", str(tmp_path / "there"), "-o", str(folder))
    done = mnb(
        *(running, "run", str(stand_in.folder / "tiny.json"), "--launcher", "slurm", "--nodes", "16"),
        *(*words, "--", "--wait", "--partition=test"),
    )
    killer.join()
    log = next(iter(tmp_path.glob("fleet-*.log"))).read_text()
    assert done.returncode == 1, done.stderr + log
    assert done.stdout.startswith("Submitted batch job")
    found = states(running, folder)
    lost = {node: standing["reason"] for node, standing in found.items() if standing["state"] != "ended"}
    assert lost.keys() == {"gpu03", "gpu05"}, log
    assert lost["gpu05"].startswith("mnb jobs was ended by a signal (SIGKILL)")
    assert "failed on node gpu03" in lost["gpu03"]
    assert [node for node in NODES if found[node]["collected"]] == [node for node in NODES if node != "gpu03"]
    assert "mnb fleet resume" in log

    os.kill(running.daemons["gpu03"], signal.SIGCONT)
    stand_in.hang("gpu05", False)
    before = FleetFolder.read(folder)
    again = mnb(running, "resume", str(folder))
    logs = "".join(path.read_text() for path in tmp_path.glob("fleet-*.log"))
    assert again.returncode == 0, again.stderr + logs
    after = FleetFolder.read(folder)
    later = after.ledger.events[len(before.ledger.events) :]
    assert {event.node for event in later if isinstance(event, NodeStarted)} == {"gpu03", "gpu05"}
    assert (after.ledger.problems, after.strangers) == ((), ())
    assert [len(records_of(one).records) for one in after.sessions] == [2] * 16
    assert after.manifest.engine == ("--wait", "--partition=test")


def test_a_fleet_that_its_job_ends_says_what_is_left(running: Cluster, stand_in: StandIn, tmp_path: Path) -> None:
    for node in NODES:
        stand_in.hang(node)
    folder = tmp_path / "fleet"
    words = ("--mnb", stand_in.command, "--node-folder", str(tmp_path / "there"), "-o", str(folder))
    done = mnb(running, "run", str(stand_in.folder / "tiny.json"), "--launcher", "slurm", "--nodes", "2", *words)
    number = done.stdout.split()[-1]
    until = time.monotonic() + 60
    while len(list(tmp_path.glob("there/*/*/called"))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert FleetFolder.read(folder).going_on
    subprocess.run(["scancel", "--batch", "--signal=TERM", number], env=running.environment, check=True)
    while FleetFolder.read(folder).going_on and time.monotonic() < until:
        time.sleep(0.1)
    assert {one.state for one in FleetFolder.read(folder).standings.values()} == {"cut off"}
    assert "FleetInterrupted" in (folder / "fleet.jsonl").read_text()


def test_nodes_meet_at_the_address_that_slurm_tells(running: Cluster, stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    (tmp_path / "spread.json").write_text(SPREAD)
    words = stand_in.over_the_network(tmp_path / "there", folder)
    more = ("--retests", "0", "--", "--wait", "--partition=test")
    mnb(running, "run", str(tmp_path / "spread.json"), "--launcher", "slurm", "--nodes", "3", *words, *more)
    meeting = read_meeting(folder, "screen")
    log = "".join(path.read_text() for path in tmp_path.glob("fleet-*.log"))
    assert meeting is not None, log
    assert (len(meeting.hellos), meeting.left) == (3, {}), log
    assert len({one.pair for one in pairs_seen(meeting)}) == 3, log
    launches = read_meeting(folder, "launches")
    assert launches is not None, log
    assert {(one.ranks, one.problem) for one in launches.launches} == {(1, ""), (2, ""), (3, "")}, log
