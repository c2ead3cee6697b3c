"""A run's folders for temporary files, removed at its end, or at the next start if it was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from milabench_ng.model.errors import InputError
from milabench_ng.model.units import MIB, format_bytes

PREFIX = "mnb-scratch-"
ROOM = 107 - len("/mnb-scratch-20261125T005654-0108964c-10/pymp-12345678/listener-12345678")
"""What the path of a socket (unix(7)) leaves to TMPDIR: loader processes make theirs in the run's folder."""
NEEDS_BYTES = 256 * MIB
"""What must be free: all workers compile the modules that they import into the run's folder."""


def scratch_parents() -> tuple[Path, ...]:
    """The folders that runs make their own in: that of TMPDIR, and others for where it will not do."""
    return tuple(dict.fromkeys(Path(parent) for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp")))


def scratch_parent() -> Path:
    """The first of them that will do. Raises InputError if none does."""
    wrong = []
    for parent in scratch_parents():
        reason = unfit(parent)
        if not reason:
            return parent
        wrong.append(f"{parent} {reason}")
    raise InputError(
        f"no folder for temporary files: {'; '.join(wrong)}. Set TMPDIR to a folder that is large and short enough."
    )


def unfit(parent: Path) -> str:
    """Why ``parent`` cannot hold a run's temporary files; empty if it can."""
    if len(os.fsencode(parent)) > ROOM:
        return f"has a path of more than {ROOM} bytes, too long for the Unix sockets of loader processes"
    if not os.access(parent, os.W_OK | os.X_OK):
        return "cannot be written to"
    free = shutil.disk_usage(parent).free
    if free < NEEDS_BYTES:
        return f"has {format_bytes(free)} free, and {format_bytes(NEEDS_BYTES)} are needed"
    return ""


@contextmanager
def scratch_folder(run_id: str, parent: Path) -> Iterator[Path]:
    """Make this run's folder below ``parent``, after removing those of dead runs (their lock is free)."""
    for left in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another run removes it, or it is no folder of ours
            remove_dead(left)
    folder = parent / f"{PREFIX}{run_id}"
    lock = make_locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def make_locked(folder: Path) -> int:
    """Make a folder and lock it; again if another run took it for a dead one's before it was locked."""
    while True:
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = _open(folder)
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever removes it holds the lock as long
            if folder.exists():
                return lock
            os.close(lock)


def remove_dead(folder: Path) -> None:
    """Remove a folder of ours that nobody holds. Raises OSError if it is held, gone, or not ours."""
    lock = _open(folder)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(lock)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
