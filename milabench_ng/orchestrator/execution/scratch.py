"""A run's folder for temporary files, removed at its end, or at the next start if it was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "mnb-scratch-"


@contextmanager
def scratch_folder(run_id: str) -> Iterator[Path]:
    """Make this run's folder, after removing those of dead runs (their lock is free)."""
    parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{PREFIX}*"):
        if left.is_dir() and not left.is_symlink() and left.stat().st_uid == os.geteuid() and not _locked(left):
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


def _locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
