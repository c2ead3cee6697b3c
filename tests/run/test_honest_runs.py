"""Honest runs on this machine keep the shipped rules, as far as a short one on CPUs can.

Runs that are interrupted, retried or of several sessions are looked at where other tests make them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from milabench_ng.records.late_steps import late_steps
from milabench_ng.records.ledger import Recorded, check_chain, lost_attempts
from milabench_ng.records.names import LEDGER
from milabench_ng.records.window import MEASURED_BY
from tests import own_node
from tests.run.conftest import AT_WORK, Runner, needs_two_cpus
from tests.run.shortened import accused, backend

ROOT = Path(__file__).parents[2]
TOY: dict[str, object] = {"toy_reg": {"workload": "toy_reg"}}
BOTH: dict[str, object] = {**TOY, "cart": {"workload": "cart"}}
NOBODY = 65534
READING = "+dac_read_search"
"""This Python may lie where other users cannot read; writing is what counts."""
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--bounding-set=-all,{READING}"]
AS_NOBODY += [f"--inh-caps={READING}", f"--ambient-caps={READING}"]

pytestmark = needs_two_cpus
needs_util_linux = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare"))), reason="needs root and util-linux"
)

CONTAINER = """
for one in $GROUPS_OF_IT; do echo $$ > $one/cgroup.procs; done
exec unshare --mount --pid --ipc --cgroup --fork --kill-child --mount-proc sh -c '
mount -t tmpfs tmpfs /dev/shm
for one in $MOUNTS_OF_IT; do
    umount -l ${one%%:*}
    mount -t cgroup -o ${one#*:} none ${one%%:*}
    mount -o remount,bind,ro ${one%%:*}
done
exec "$@"' sh "$@"
"""
"""As Docker starts one: limits on its own group, which it sees as the root of all, and can change nothing there."""


def command(folder: Path, tests: dict[str, object]) -> list[str]:
    """``mnb jobs`` with these tests."""
    profile = folder.with_name("trial.json")
    profile.write_text(json.dumps(tests))
    words = ["jobs", str(profile), "-o", str(folder), "--dataroot", str(folder.with_name("data"))]
    return [sys.executable, "-m", "milabench_ng", *words, "--window", "1.5", "--tenants", "2"]


def ends(words: Sequence[str], code: int = 0, **environ: str) -> None:
    """Run a command that ends with this code."""
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr


def test_a_fenced_run_of_the_whole_window(run_profile: Runner) -> None:
    done = run_profile(BOTH, rule=MEASURED_BY)
    assert done.outcome.failed == 0
    for mnb in (record.mnb for record in done.records if record.mnb.label.endswith("toy_reg")):
        told, steps = {int(step) for step in mnb.ranks[0].losses}, sum(row.steps for row in mnb.ranks[0].slices)
        assert told >= {step for step in late_steps(None, mnb.label) if step <= steps}
        assert max(told) > 100
    assert accused(done.folder) == {}


def test_some_tests_without_isolation(run_profile: Runner) -> None:
    assert accused(run_profile(BOTH, isolation="none", names=("toy_reg",), rule=AT_WORK).folder) == {}


def test_a_run_beside_programs_that_keep_all_cpus_busy(run_profile: Runner) -> None:
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        done = run_profile(BOTH, rule=AT_WORK)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert accused(done.folder) == {}


@needs_util_linux
def test_a_user_who_may_make_no_groups() -> None:
    with tempfile.TemporaryDirectory(prefix="mnb-nobody-") as place:  # what pytest makes is closed to others
        os.chown(place, NOBODY, NOBODY)
        folder = Path(place, "results")
        ends([*AS_NOBODY, *command(folder, TOY)])
        assert backend(folder) == "affinity"
        assert accused(folder) == {}


@pytest.fixture
def container() -> Iterator[dict[str, str]]:
    """Groups with limits, and what a container is told of them."""
    groups, mounts = [], []
    for one in own_node.hierarchies():
        if one.kind != "cgroup":
            continue
        group = one.place / f"mnb-container-{os.getpid()}"
        group.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            with contextlib.suppress(FileNotFoundError):
                (group / file).write_text((one.place / file).read_text())
        for file, limit in (("memory.limit_in_bytes", "12G"), ("cpu.cfs_quota_us", "150000"), ("pids.max", "500")):
            if (group / file).exists():
                (group / file).write_text(limit)
        groups.append(group)
        mounts.append(f"{one.place}:{one.options}")
    yield {"GROUPS_OF_IT": " ".join(map(str, groups)), "MOUNTS_OF_IT": " ".join(mounts)}
    for group in groups:
        group.rmdir()


@needs_util_linux
@pytest.mark.skipif(not own_node.possible(), reason="needs cgroup v1")
def test_a_container_with_limits(tmp_path: Path, container: dict[str, str]) -> None:
    folder = tmp_path / "results"
    ends(["sh", "-c", CONTAINER, "sh", *command(folder, TOY)], **container)
    assert backend(folder) == "affinity"
    assert accused(folder) == {}


def test_a_run_that_was_killed_and_goes_on(tmp_path: Path) -> None:
    """By SIGKILL, in the second of two batches."""
    folder = tmp_path / "results"
    first = subprocess.Popen(command(folder, BOTH), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = folder / "logs" / "trial.cart.J0.0.log"
    while not log.exists():
        assert first.poll() is None
        time.sleep(0.05)
    first.kill()
    first.wait()
    ends([sys.executable, "-m", "milabench_ng", "resume", str(folder)], code=1)
    chain = check_chain((folder / LEDGER).read_bytes())
    assert len(lost_attempts(chain.events)) == 2
    assert sum(isinstance(event, Recorded) for event in chain.events) == 4
    assert accused(folder, failure_rate=None) == {}
