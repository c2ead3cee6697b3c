"""What `mnb` inherits of whatever starts it: it makes the best of it, or says in a sentence why it does not begin."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import select
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from milabench_ng.cli.node_options import data_root
from milabench_ng.model.errors import InputError
from milabench_ng.records.isolation import Share
from milabench_ng.run.execution.environment import worker_environment
from milabench_ng.run.execution.interruption import SIGNALS
from milabench_ng.run.execution.scratch import ROOM, scratch_parent
from milabench_ng.run.execution.server_link import open_link
from milabench_ng.run.planning.planned_run import beyond_own
from tests.run.conftest import Runner

ROOT = Path(__file__).parents[2]
LOADER = {"workload": "loader", "arguments": {"batch_size": 8, "workers": 1}}


def mnb(*words: str, limit: int, soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """Run the command under a limit that it may not raise: without CAP_SYS_RESOURCE."""

    def limited() -> None:
        ctypes.CDLL(None).prctl(24, 24, 0, 0, 0)  # PR_CAPBSET_DROP; fails for a user, who has it not
        resource.setrlimit(limit, (soft, hard))

    command = [sys.executable, "-m", "milabench_ng", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=limited)


LIMITS = [
    (resource.RLIMIT_NOFILE, 64, "a process may have 64 open files, but mnb needs 1,024"),
    (
        resource.RLIMIT_FSIZE,
        4096,
        "a process may have 4,096 bytes in a file, but mnb needs 1,073,741,824",
    ),
    (resource.RLIMIT_AS, 4 << 30, "a process may have 4,294,967,296 bytes of address space, but mnb needs"),
]


@pytest.mark.parametrize(("limit", "value", "said"), LIMITS)
def test_a_limit_that_is_too_low_is_refused_before_torch_is_imported(
    tmp_path: Path, limit: int, value: int, said: str
) -> None:
    out = tmp_path / "out"
    done = mnb("jobs", "quick", "-o", str(out), limit=limit, soft=value, hard=value)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"mnb: limits: {said}")
    assert "importing" not in done.stderr
    assert not out.exists()
    doctor = mnb("doctor", limit=limit, soft=value, hard=value)
    assert doctor.returncode == 1
    assert f"not ready {last.removeprefix('mnb: ')}" in " ".join(doctor.stdout.split())


def test_a_signal_to_the_group_does_not_end_a_server_that_still_starts() -> None:
    link = open_link(worker_environment(os.environ, {}, ())[0])
    for number in SIGNALS:
        os.kill(link.process.pid, number)
    select.select([link.connection], [], [], 600)
    link.connection.setblocking(True)
    assert link.connection.recv(1 << 20), "it has ended"
    link.connection.close()
    link.process.wait()
    os.close(link.death)


def scheduled(*keep: int) -> str:
    """What a process says that begins with niceness 10 in the idle class, of which root may leave all but ``keep``."""

    def unlucky() -> None:
        for capability in keep:
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
        os.nice(10)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    ask = (
        "import os; from milabench_ng.run.execution.serving import poor_scheduling; "
        "print(*poor_scheduling(), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    command = [sys.executable, "-c", ask]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, preexec_fn=unlucky).stdout


CAP_SYS_NICE = 23


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may leave the idle class")
def test_a_scheduling_class_of_a_batch_system_is_left_or_told() -> None:
    assert scheduled() == f"{os.SCHED_OTHER} 0\n"
    assert scheduled(CAP_SYS_NICE).startswith("scheduling: mnb has niceness 10 and the ")


def test_cpus_beyond_those_that_mnb_was_started_on_are_told() -> None:
    share = Share(cpus=(0, 1), mems=(0,), memory_bytes=1, memory_nominal_bytes=1, pids=1, cores=2)
    assert beyond_own({0, 1, 2}, {"0": share}) == ()
    [note] = beyond_own({1}, {"0": share})
    assert note.startswith(
        "mnb was started on CPU 1 (taskset, or a batch system), but the tenants also get CPU 0 of its cgroup"
    )


def test_a_limit_that_may_be_raised_is_raised() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = mnb("list", limit=resource.RLIMIT_NOFILE, soft=16, hard=hard)
    assert (done.returncode, done.stderr.count("limits:")) == (0, 0)


def test_a_path_of_tmpdir_that_is_too_long_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_profile: Runner
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    finished = run_profile({"loader": LOADER}, tenants=1, isolation="none")
    assert [record.success for record in finished.records] == [True]
    [note] = [note for note in finished.notes if "temporary" in note]
    assert note.startswith("temporary files of the workers go to /tmp/mnb-scratch-")
    assert note.endswith(
        f": {long} has a path of more than {ROOM} bytes, too long for the Unix sockets of loader processes"
    )
    assert not list(long.glob("mnb-*"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(
        InputError, match=rf"{long} has a path of more .*; /tmp cannot be written to; /var/tmp .*Set TMPDIR"
    ):
        scratch_parent()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small folder")
def test_a_small_tmpdir_is_passed_over() -> None:
    within = 'mount -t tmpfs -o size=64k none /var/tmp && TMPDIR=/var/tmp exec "$@"'
    ask = (
        "from pathlib import Path; import tempfile; from milabench_ng.run.execution.scratch import *; "
        "print(scratch_parent(), unfit(Path(tempfile.gettempdir())))"
    )
    command = ["unshare", "--mount", "sh", "-c", within, "sh", sys.executable, "-c", ask]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "/tmp has 64.0 KiB free, and 256.0 MiB are needed\n"


def test_a_user_without_a_home_names_a_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "MNB_DATAROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(
        InputError, match=r"HOME is not set, and user \d+ has no entry in /etc/passwd. Set HOME, or name"
    ):
        data_root(None)
    assert data_root(tmp_path) == tmp_path


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide the groups")
def test_groups_that_are_hidden_are_as_good_as_none(tmp_path: Path) -> None:
    hide = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    hidden = ["unshare", "--mount", "sh", "-c", hide, "sh", sys.executable, "-m", "milabench_ng"]
    done = subprocess.run([*hidden, "doctor"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "not ready  isolation: no cgroups are mounted, or another mount hides them." in done.stdout
    words = ["jobs", "quick", "--isolation", "full", "-o", str(tmp_path / "out")]
    done = subprocess.run([*hidden, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "no cgroups are mounted" in done.stderr.splitlines()[-1]
    assert "importing" not in done.stderr
    assert not (tmp_path / "out").exists()
