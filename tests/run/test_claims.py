"""What a worker says of itself harms nobody: in a pid namespace of its own, where bystanders run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from milabench_ng.records.record import Record

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs for two tenants"),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))), reason="needs root and util-linux"
    ),
]
HUGE = str(10**15)
"""The largest that an event holds."""
EVERYBODY = [
    "1",
    *["server", "mnb", "shell", "neighbour", "mine", "leader", "other"],
    HUGE,
    "only dead",
    "random",
    "late 1",
]
ROOT = Path(__file__).parents[2]
NODE = [sys.executable, "-m", "tests.run.hostile_node"]
BLIND = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
"""Without this capability, root may not read what has it, such as the init process, and `hidepid` holds for it."""


def run_lies(folder: Path, lies: Sequence[str], isolation: str, before: Sequence[str] = (), hide: str = "true") -> None:
    """Run one batch for each of the lies; of its two workers, one lies, and the other is its neighbour."""
    mnb = [*before, *NODE, "mnb", str(folder), isolation, str(len(lies))]
    init = [*NODE, "init", str(folder), json.dumps([lie.split() for lie in lies]), *mnb]
    place = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*place, "sh", "-c", f'{hide} && exec "$@"', "init", *init],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"seed {told['seed']}")
    assert (told["dead"], told["status"]) == ([], 0), done.stdout
    assert len((folder / "lies.json.turn").read_text()) == 2 * len(lies), done.stdout
    for number, lie in enumerate(lies):
        found = [
            msgspec.json.decode(path.read_bytes(), type=Record)
            for path in (folder / "results").glob(f"trial.lies.J{number}.*.json")
        ]
        assert len(found) == 2, done.stdout
        liar, neighbour = sorted(found, key=lambda record: record.success)
        assert neighbour.success, (lie, neighbour.mnb.failure)
        assert liar.mnb.failure is not None, lie
        assert liar.mnb.failure.cause == "isolation_lost", (lie, liar.mnb.failure)
        said = re.search(r"says that it is process (\d+), ", liar.mnb.failure.detail)
        assert said, (lie, liar.mnb.failure.detail)
        first = next(word for word in told["told"][number] if word not in ("late", "only"))
        assert not first.isdecimal() or said[1] == first, (lie, liar.mnb.failure.detail)


def test_nobody_is_harmed_by_what_a_worker_says_it_is(tmp_path: Path) -> None:
    run_lies(tmp_path, EVERYBODY, "auto")


def test_an_init_process_that_cannot_be_read_is_not_gone(tmp_path: Path) -> None:
    run_lies(tmp_path, ["1", "other", "late random"], "auto", BLIND)


def test_an_init_process_that_is_hidden_is_not_harmed_either(tmp_path: Path) -> None:
    hide = "mount -o remount,hidepid=2,gid=65534 /proc"
    run_lies(tmp_path, ["1", "random"], "affinity", BLIND, hide)
