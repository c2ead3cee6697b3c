"""Several processes at once: each does its own, and a killed one is named."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path

import pytest

from milabench_ng.datasets.parallel import at_once
from milabench_ng.model.errors import InputError


def _meet(folder: Path, others: int) -> int:
    """Return when so many are here; each waits for the others, which works only if all run at the same time."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < others:
        time.sleep(0.005)
    return os.getpid()


def test_all_processes_work_at_the_same_time(tmp_path: Path) -> None:
    found = at_once(functools.partial(_meet, tmp_path, 5), 5)
    assert len(set(found)) == 5
    assert os.getpid() not in found


def test_a_killed_process_is_named() -> None:
    with pytest.raises(InputError, match="one of 2 generating processes was killed"):
        at_once(_die, 2)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
