"""Disks that are soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of this size in ``folder``."""
    place = folder / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "mnb-test", place], check=False).returncode:
        pytest.skip(f"needs root, to mount a disk of {size}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    hog = disk / "hog"
    with hog.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return hog
