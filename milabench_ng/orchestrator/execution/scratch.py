"""A run's folder for temporary files, removed at its end, or at the next start if it was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milabench_ng.files import is_locked

PREFIX = "mnb-scratch-"


@contextmanager
def scratch_folder(run_id: str) -> Iterator[Path]:
    """Make this run's folder, after removing those of dead runs (their lock is free)."""
    parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{PREFIX}*"):
        own = left.is_dir() and not left.is_symlink() and left.stat().st_uid == os.geteuid()
        if own and not is_locked(left, os.O_DIRECTORY | os.O_NOFOLLOW):
            shutil.rmtree(left)
    folder = parent / f"{PREFIX}{run_id}"
    folder.mkdir(mode=0o700)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)
