"""Whose the processes in a group are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.occupants import foreign


def test_foreign_is_what_neither_is_ours_nor_descends_from_us(tmp_path: Path) -> None:
    source = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()']).wait()"
    pipe = subprocess.PIPE
    gone = subprocess.Popen(["true"])
    gone.wait()
    with subprocess.Popen([sys.executable, "-c", source], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        grandchild = psutil.Process(child.pid).children()[0].pid
        ours = (os.getpid(), child.pid, grandchild, gone.pid)
        (tmp_path / "cgroup.procs").write_text("\n".join(map(str, (*ours, os.getppid(), 1, 0))))
        assert foreign(Group2(tmp_path)) == (os.getppid(), 1, 0)
