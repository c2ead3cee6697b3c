"""The fence inside an allocation of a real Slurm on this machine, run by `scripts/test --slurm` only (a minute)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, build, cluster

pytestmark = [
    pytest.mark.skipif("MNB_TEST_SLURM" not in os.environ, reason="starts a Slurm cluster: scripts/test --slurm"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.timeout(600),
]
JOB = Path(__file__).parent / "job"


@pytest.fixture(scope="session")
def programs() -> Path:
    return build()


@pytest.fixture(params=["task/cgroup,task/affinity", "task/affinity", "task/none"])
def running(request: pytest.FixtureRequest, programs: Path, tmp_path: Path) -> Iterator[tuple[str, Cluster]]:
    with cluster(programs, tmp_path / "slurm", request.param) as made:
        yield request.param, made


def test_job(running: tuple[str, Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    task, made = running
    checks = JOB / ("check_held.py" if "cgroup" in task else "check_loose.py")
    script = f"cd {Path.cwd()} && {sys.executable} -m pytest -q -rs -p no:cacheprovider {checks}"
    status, said = made.run(script, "--mem=12000", "--gres=gpu:2")
    with capsys.disabled():
        print(
            "", *(f"{task}: {line}" for line in said.splitlines() if " passed" in line or " failed" in line), sep="\n"
        )
    assert status == 0, said
