"""How helpers of a run end whose orchestrator, or whose fence, is gone: in words, or quietly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ANSWER = """
import os, socket
from milabench_ng.worker.requests import Describe
from milabench_ng.worker.answers import answer
from milabench_ng.worker.requests import MESSAGE_BYTES
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
{unread}
theirs.close()
answer(Describe(id=1, asked=()), ours, os.getppid())
"""
WARM = """
import os, sys, msgspec
from milabench_ng.worker.requests import Task
from milabench_ng.worker import warm
task = msgspec.json.decode(sys.argv[1], type=Task)
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
warm.run(task, os.getppid(), 0, 0, log)
"""
TASK = """{
    "workload": "toy_reg", "arguments": {}, "rule": {}, "data": null, "environment": {}, "requested_s": 0.0,
    "seats": [{"slot": "0", "device": {"index": 0, "kind": "cpu", "uuid": null, "name": "", "numa_node": null},
               "threads": 1, "entry": {"procs": ["/sys/fs/cgroup/mnb-gone/cgroup.procs"], "cpus": []}}]
}"""


@pytest.mark.parametrize("unread", ["", "ours.send(b'progress')"])
def test_an_answer_that_nobody_waits_for_ends_quietly(unread: str) -> None:
    ended = subprocess.run([sys.executable, "-c", ANSWER.format(unread=unread)], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_warm_worker_whose_group_is_gone_says_so_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = subprocess.run([sys.executable, "-c", WARM, TASK, str(log)], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (125, b"")
    path = "/sys/fs/cgroup/mnb-gone/cgroup.procs"
    assert (
        log.read_text()
        == f"mnb: could not enter its isolation: cannot write '0' to {path}: No such file or directory\n"
    )
