"""Honest runs on this machine keep the shipped rules, as far as a short one on CPUs can.

Runs that are interrupted, retried or of several sessions are looked at where other tests make them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from milabench_ng.records.late_steps import late_steps
from milabench_ng.records.window import MEASURED_BY
from tests.orchestrator.conftest import Runner
from tests.orchestrator.shortened import accused

ROOT = Path(__file__).parents[2]
TOY: dict[str, object] = {"toy_reg": {"workload": "toy_reg"}}
BOTH: dict[str, object] = {**TOY, "cart": {"workload": "cart"}}
NOBODY = 65534
READING = "+dac_read_search"
"""This Python may lie where other users cannot read; writing is what counts."""
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--bounding-set=-all,{READING}"]
AS_NOBODY += [f"--inh-caps={READING}", f"--ambient-caps={READING}"]

pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs for two tenants")
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
