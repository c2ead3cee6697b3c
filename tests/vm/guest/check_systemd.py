"""Pure v2 under systemd: the delegated scope of root, and of a user with and without the drop-in. In this order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

from fence_waiting import wait_for
from users import run, session

DROP_IN = Path("/etc/systemd/system/user@.service.d/mnb.conf")


def left() -> list[Path]:
    """Groups of ours that are still there."""
    return [
        path
        for path in Path("/sys/fs/cgroup").rglob("*")
        if path.is_dir() and "mnb-" in path.name.replace("mnb-boot.service", "")
    ]


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_root_runs_in_a_scope_of_the_system() -> None:
    told = run("root")
    assert (told["backend"], told["tier"], told["cause"]) == ("scope", "full", "oom")
    assert str(told["parent"]).startswith("/sys/fs/cgroup/system.slice/mnb-")
    assert (told["cpus"], told["swap"]) == ([2], 0)
    assert wait_for(lambda: not left())


def test_a_user_without_a_scope_is_told_how_to_get_one() -> None:
    told = run("alice", MNB_SCOPE="tried")
    assert (told["backend"], told["tier"], told["cause"]) == ("affinity", "affinity", "oom")
    assert any("systemd-run --user --scope -p Delegate=yes" in one for one in told["notes"])


def test_a_user_by_default_has_memory_only() -> None:
    told = run("alice")
    assert (told["backend"], told["tier"], told["cause"]) == ("scope", "partial", "oom")
    assert "/user@1000.service/" in str(told["parent"])
    assert told["cpus"] == [2]
    assert any(
        one.startswith('isolation: systemd delegates only "cpu memory pids" to this user: cpuset and io are missing')
        for one in told["notes"]
    )
    assert wait_for(lambda: not left())


def test_a_user_with_the_drop_in_is_fenced_fully() -> None:
    DROP_IN.parent.mkdir(parents=True)
    DROP_IN.write_text("[Service]\nDelegate=yes\n")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    subprocess.run(["systemctl", "stop", "user@1000"], check=True)
    told = run("alice")
    assert (told["backend"], told["tier"], told["cause"]) == ("scope", "full", "oom")
    assert (told["cpus"], told["swap"], told["notes"]) == ([2], 0, [])
    assert wait_for(lambda: not left())


def hold() -> tuple[subprocess.Popen[str], dict[str, object]]:
    process = subprocess.Popen(session("alice", "hold"), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, json.loads(process.stdout.readline())


def test_nothing_of_a_killed_run_is_left() -> None:
    process, told = hold()
    os.kill(told["pid"], signal.SIGKILL)
    assert wait_for(lambda: gone(told["tenant"]) and not left(), seconds=1)
    process.wait()


def test_the_next_start_reaps_the_scope_of_a_run_whose_guardian_died_too() -> None:
    process, told = hold()
    leaf = Path(told["parent"], "mnb-main", "cgroup.procs").read_text().split()
    for pid in {int(pid) for pid in leaf} - {told["pid"]} | {told["pid"]}:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert not gone(told["tenant"])
    [said] = run("alice")["reaped"]
    # One or two: the tenant's first process hears of the orchestrator's end by itself.
    assert re.fullmatch(
        rf"isolation: cleaned up dead run run-{told['pid']}: killed [12] processes, "
        r"removed 2 groups\.",
        said,
    )
    assert gone(told["tenant"])
    assert wait_for(lambda: not left())
